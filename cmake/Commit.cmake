# Run at every build (cmake -P): writes the commit of SOURCE into HEADER, if it is another one than before.
# Only a checkout of this very folder counts: sources unpacked in somebody else's repository are "unknown".
set(commit unknown)
find_program(git git)
if(git AND EXISTS "${SOURCE}/.git")
  execute_process(COMMAND "${git}" -C "${SOURCE}" describe --always --abbrev=40 --exclude=* --dirty=-modified
    OUTPUT_VARIABLE found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
  if(NOT failed)
    set(commit "${found}")
  endif()
endif()
file(CONFIGURE OUTPUT "${HEADER}" CONTENT "#define HOCKEYSTICK_COMMIT \"${commit}\"\n")
