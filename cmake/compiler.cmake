# Flags of our own code. Generated code and third-party headers are SYSTEM and get no warnings.
set(PENSTOCK_SANITIZE "" CACHE STRING "Sanitizers, comma-separated: address,undefined or thread")

add_library(penstock_flags INTERFACE)
target_include_directories(penstock_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(penstock_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Werror -Wshadow=local -Wnon-virtual-dtor -Woverloaded-virtual>
  # The same source gives the same bits on every machine: no fused multiply-add that one compiler run chooses and
  # another does not.
  $<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)

if(PENSTOCK_SANITIZE)
  set(sanitize -fsanitize=${PENSTOCK_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -O1)
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${sanitize}>")
  add_link_options(-fsanitize=${PENSTOCK_SANITIZE})
endif()
