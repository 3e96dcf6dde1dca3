# What workers with other CPUs compute: oneDNN takes the kernels of a narrower instruction set where it is told to. AVX2
# has no row-invariant products, AVX512_CORE no bfloat16; both multiply bfloat16 values in float32.
if(PENSTOCK_SANITIZE)
  return()
endif()
foreach(set AVX2 AVX512_CORE)
  foreach(room kernels_ops worker_model)
    add_test(NAME ${set}:${room} COMMAND penstock_${room}_test --gtest_brief=1)
    set_tests_properties(${set}:${room} PROPERTIES ENVIRONMENT "DNNL_MAX_CPU_ISA=${set}" TIMEOUT 300)
  endforeach()
endforeach()
