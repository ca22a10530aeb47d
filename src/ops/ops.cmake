option(LILY_QUICK_KERNELS "Compile the CPU's kernels for the oldest instruction set alone, and without sanitizers" OFF)

# Contracts, reference forms and binders are compiled once; *.cpu.cpp once for each instruction set.
file(GLOB ops_sources CONFIGURE_DEPENDS ops/*.cpp ops/*/*.cpp)
list(FILTER ops_sources EXCLUDE REGEX "\\.cpu\\.cpp$")
file(GLOB ops_cpu_sources CONFIGURE_DEPENDS ops/*.cpu.cpp ops/*/*.cpu.cpp)

function(lily_isa isa sources)
  get_property(isas GLOBAL PROPERTY LILY_ISAS)
  if(LILY_QUICK_KERNELS AND isas)
    return()
  endif()
  add_library(lily_ops_${isa} OBJECT ${sources})
  # Always optimised: at -O0 inline functions would be emitted out of line for everybody (see ops/cpu_kernels.h).
  target_compile_options(lily_ops_${isa} PRIVATE ${ARGN} -O3 -fno-math-errno -fno-exceptions)
  target_compile_definitions(lily_ops_${isa} PRIVATE LILY_ISA=${isa})
  if(LILY_QUICK_KERNELS)
    target_compile_options(lily_ops_${isa} PRIVATE -fno-sanitize=all)
  endif()
  target_link_libraries(lily_ops_${isa} PRIVATE lily_plan)
  set_property(GLOBAL APPEND PROPERTY LILY_ISAS ${isa})
endfunction()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(avx2 -mavx2 -mfma -mf16c -mbmi -mbmi2)
  lily_isa(avx2 "${ops_cpu_sources}" ${avx2})
  lily_isa(avxvnni "${ops_cpu_sources}" ${avx2} -mavxvnni)
  set(avx512vnni ${avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni -mprefer-vector-width=512)
  lily_isa(avx512vnni "${ops_cpu_sources}" ${avx512vnni})
  # Adds products of tiles; what multiplies neither quantised matrices nor keys and values is avx512vnni's.
  file(GLOB tile_sources CONFIGURE_DEPENDS ops/matmul/*.cpu.cpp ops/attention/*.cpu.cpp)
  lily_isa(avx512amx "${tile_sources};ops/linear/linear.cpu.cpp;ops/expert_linear/expert_linear.cpu.cpp;ops/cpu_table.cpu.cpp"
           ${avx512vnni} -mavx512bf16 -mamx-tile -mamx-int8 -mamx-bf16 -DLILY_AMX)  # compilers' own words for it differ
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  lily_isa(neon "${ops_cpu_sources}")
  lily_isa(neon_dotprod "${ops_cpu_sources}" -march=armv8.2-a+dotprod)
else()
  message(FATAL_ERROR "no CPU kernels for ${CMAKE_SYSTEM_PROCESSOR}")
endif()

get_property(isas GLOBAL PROPERTY LILY_ISAS)
foreach(isa ${isas})
  list(APPEND isa_objects $<TARGET_OBJECTS:lily_ops_${isa}>)
endforeach()
add_library(lily_ops STATIC ${ops_sources} ${isa_objects})
target_link_libraries(lily_ops PUBLIC lily_plan)
