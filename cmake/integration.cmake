# Whole-process tests, in Python with Debian's gRPC: they drive the built programs as users do. Not for sanitizer
# builds unless asked for, since their daemons need everything built.
option(PENSTOCK_INTEGRATION "Register tests/integration" ON)
if(PENSTOCK_SANITIZE OR NOT PENSTOCK_INTEGRATION)
  return()
endif()
find_program(PENSTOCK_PYTHON NAMES /usr/bin/python3 python3 REQUIRED)
find_program(GRPC_PYTHON_PLUGIN grpc_python_plugin REQUIRED)

set(python_generated ${CMAKE_BINARY_DIR}/python)
file(MAKE_DIRECTORY ${python_generated})
set(python_stamp ${python_generated}/generated.stamp)
add_custom_command(
  OUTPUT ${python_stamp}
  COMMAND protobuf::protoc -I ${CMAKE_SOURCE_DIR}/proto --python_out=${python_generated}
          --grpc_out=${python_generated} --plugin=protoc-gen-grpc=${GRPC_PYTHON_PLUGIN} ${proto_files}
  COMMAND ${CMAKE_COMMAND} -E touch ${python_stamp}
  DEPENDS ${proto_files}
  COMMENT "protoc for Python")
add_custom_target(penstock_python_protocol ALL DEPENDS ${python_stamp})

# One test a class: they start their own processes on free ports, and hold to bounds in seconds, so each runs alone.
foreach(test numerics_test.OneCurve numerics_test.WhatCanBeLearnt failure_test.Failures failure_test.CoordinatorRestart
             failure_test.Waiting recovery_test.Recovery data_test.OwnTokens moe_test.ExpertsOverRanks degrees_test.Degrees checkpoint_test.Checkpoint trace_test.Trace emulated_test.Emulated rebalance_test.EmulatedPipeline rebalance_test.BitsOfARebalancedJob planning_test.PlannedFromAMeasuredJob planning_test.PlannedFromAnEmulatedJob command_line_test.CommandLine command_line_test.Offline)
  add_test(NAME integration:${test}
    COMMAND ${PENSTOCK_PYTHON} -m unittest -v tests.integration.${test}
    WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(integration:${test} PROPERTIES RUN_SERIAL ON TIMEOUT 900
    ENVIRONMENT "PENSTOCK_BINARIES=${CMAKE_BINARY_DIR}/bin;PYTHONPATH=${python_generated};PYTHONDONTWRITEBYTECODE=1")
endforeach()
