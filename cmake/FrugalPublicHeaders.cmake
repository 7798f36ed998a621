# frugal_public_headers(ROOT OUT): the headers that frugal.h reaches, itself included. These are installed; all others
# are internal.
cmake_policy(SET CMP0057 NEW)  # IN_LIST, in install scripts too
function(frugal_public_headers root out)
  set(found frugal.h)
  set(pending frugal.h)
  while(pending)
    list(POP_FRONT pending header)
    file(STRINGS ${root}/${header} lines REGEX "^#include \"")
    foreach(line IN LISTS lines)
      string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" next "${line}")
      if(NOT next IN_LIST found)
        list(APPEND found ${next})
        list(APPEND pending ${next})
      endif()
    endforeach()
  endwhile()
  set(${out} ${found} PARENT_SCOPE)
endfunction()
