file(GLOB_RECURSE backend_sources CONFIGURE_DEPENDS backend/*.cpp)
add_library(lily_backend STATIC ${backend_sources})
target_link_libraries(lily_backend PUBLIC lily_ops)
