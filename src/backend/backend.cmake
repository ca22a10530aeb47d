file(GLOB_RECURSE backend_sources CONFIGURE_DEPENDS backend/*.cpp)
add_library(lily_backend STATIC ${backend_sources})
target_link_libraries(lily_backend PUBLIC lily_ops)
if(LILY_QUICK_KERNELS)
  set_source_files_properties(backend/cpu/dispatch.cpp PROPERTIES COMPILE_DEFINITIONS "LILY_ISAS=X(${isas})"
    COMPILE_OPTIONS -Wno-unused-function)
endif()
