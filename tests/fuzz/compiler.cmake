# The fuzzers belong to the build under AddressSanitizer, so that what they call is compiled once. They take libFuzzer, which gcc has
# not: where clang has all its runtimes (they are packages of their own), and nobody names another compiler, clang builds that tree.
if(NOT LILY_SANITIZE MATCHES address OR CMAKE_CXX_COMPILER OR DEFINED ENV{CXX})
  return()
endif()
find_program(LILY_CLANG NAMES clang++ clang++-14 clang++-15 clang++-16 clang++-19)
if(LILY_CLANG)
  set(probe ${CMAKE_BINARY_DIR}/clang_probe)
  file(WRITE ${probe}.cpp
    "#include <cstddef>\n#include <cstdint>\nextern \"C\" int LLVMFuzzerTestOneInput(const std::uint8_t*, std::size_t) { return 0; }\n")
  execute_process(COMMAND ${LILY_CLANG} -fsanitize=fuzzer,address,undefined ${probe}.cpp -o ${probe}
                  RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed EQUAL 0)
    set(CMAKE_CXX_COMPILER ${LILY_CLANG})
  endif()
endif()
