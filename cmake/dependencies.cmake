# Everything comes from Debian's packages (deploy/local/install_dependencies lists them) or the CUDA toolkit.
find_package(Threads REQUIRED)
find_package(Protobuf REQUIRED)
find_package(gRPC CONFIG REQUIRED)
find_package(absl CONFIG REQUIRED)
find_package(spdlog CONFIG REQUIRED)
find_package(fmt CONFIG REQUIRED)
find_package(prometheus-cpp CONFIG REQUIRED)
find_package(civetweb CONFIG REQUIRED)
find_package(Gloo CONFIG REQUIRED)
find_package(yaml-cpp CONFIG REQUIRED)
find_package(CLI11 CONFIG REQUIRED)
find_package(nlohmann_json CONFIG REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(GTest CONFIG REQUIRED)
find_package(benchmark CONFIG REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)

# oneDNN's own CMake config asks for OpenCL headers that Debian's package does not bring.
find_library(DNNL_LIBRARY dnnl REQUIRED)
find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp REQUIRED)
add_library(penstock_dnnl INTERFACE)
target_include_directories(penstock_dnnl SYSTEM INTERFACE ${DNNL_INCLUDE_DIR})
target_link_libraries(penstock_dnnl INTERFACE ${DNNL_LIBRARY} OpenMP::OpenMP_CXX)

find_library(XXHASH_LIBRARY xxhash REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
add_library(penstock_xxhash INTERFACE)
target_include_directories(penstock_xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE_DIR})
target_link_libraries(penstock_xxhash INTERFACE ${XXHASH_LIBRARY})

# Debian's SentencePiece exports a Protocol Buffers runtime of its own: a program that links both gets one for the
# other's symbols. So only programs without our protocol may use the rooms that name it.
find_library(SENTENCEPIECE_LIBRARY sentencepiece REQUIRED)
find_library(SENTENCEPIECE_TRAIN_LIBRARY sentencepiece_train REQUIRED)
find_path(SENTENCEPIECE_INCLUDE_DIR sentencepiece_processor.h REQUIRED)
add_library(penstock_sentencepiece INTERFACE)
target_include_directories(penstock_sentencepiece SYSTEM INTERFACE ${SENTENCEPIECE_INCLUDE_DIR})
target_link_libraries(penstock_sentencepiece INTERFACE ${SENTENCEPIECE_TRAIN_LIBRARY} ${SENTENCEPIECE_LIBRARY})

# CUDA is used where it is found and left out where it is not; nothing is written for it yet.
option(PENSTOCK_CUDA "Build the CUDA backend when the toolkit is found" ON)
set(PENSTOCK_HAVE_CUDA OFF)
if(PENSTOCK_CUDA)
  find_package(CUDAToolkit QUIET)
  set(PENSTOCK_HAVE_CUDA ${CUDAToolkit_FOUND})
endif()
message(STATUS "CUDA toolkit: ${PENSTOCK_HAVE_CUDA}")
