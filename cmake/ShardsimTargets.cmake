# shardsim_library(name [INTERNAL] SOURCES ... LINKS ... PRIVATE_LINKS ...)
#   The library of one folder, target shardsim_<name>, alias shardsim::<name>. A folder that has
#   headers only gives no SOURCES and becomes an INTERFACE library. INTERNAL: not installed.
# shardsim_unit_test(layer SOURCES ... LINKS ...)
#   The tests of one folder, one executable. Nothing is built while SOURCES is empty.

find_program(SHARDSIM_CCACHE ccache)
if(SHARDSIM_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${SHARDSIM_CCACHE})
endif()

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(shardsim_options INTERFACE)
target_compile_features(shardsim_options INTERFACE cxx_std_20)
# No fused multiply-add: Debug and Release must agree to the last bit. GCC 12's -Wrestrict warns of
# std::string's own code (GCC bug 105651).
set(cxx_options
  -Wall -Wextra -Wpedantic -Wshadow -ffp-contract=off
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
  $<$<BOOL:${SHARDSIM_WERROR}>:-Werror>)
target_compile_options(shardsim_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${cxx_options}>")
if(SHARDSIM_SANITIZE)
  set(sanitizer_options
    -fsanitize=${SHARDSIM_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
  target_compile_options(shardsim_options INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:${sanitizer_options}>")
  target_link_options(shardsim_options INTERFACE -fsanitize=${SHARDSIM_SANITIZE})
endif()

set_property(GLOBAL PROPERTY SHARDSIM_LIBRARIES "")

function(shardsim_library name)
  cmake_parse_arguments(ARG "INTERNAL" "" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  set(target shardsim_${name})
  set(scope PUBLIC)
  if(ARG_SOURCES)
    add_library(${target} STATIC ${ARG_SOURCES})
    target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:shardsim_options> ${ARG_PRIVATE_LINKS})
    set_target_properties(${target} PROPERTIES CXX_EXTENSIONS OFF)
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(shardsim::${name} ALIAS ${target})
  target_compile_features(${target} ${scope} cxx_std_20)
  target_include_directories(${target} ${scope}
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
    $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/shardsim>)
  target_link_libraries(${target} ${scope} ${ARG_LINKS})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  if(NOT ARG_INTERNAL)
    set_property(GLOBAL APPEND PROPERTY SHARDSIM_LIBRARIES ${target})
  endif()
endfunction()

function(shardsim_unit_test layer)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINKS" ${ARGN})
  if(NOT ARG_SOURCES)
    return()
  endif()
  set(target ${layer}_test)
  add_executable(${target} ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE
    shardsim_options shardsim::${layer} ${ARG_LINKS} GTest::gtest_main)
  target_compile_definitions(${target} PRIVATE SHARDSIM_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${target} TEST_PREFIX ${layer}. DISCOVERY_MODE PRE_TEST
    PROPERTIES LABELS unit)
endfunction()
