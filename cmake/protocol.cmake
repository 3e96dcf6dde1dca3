# Generates C++ from proto/penstock/v1. Rooms that may see it use penstock_proto.
set(generated ${CMAKE_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${generated})
file(GLOB proto_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/proto/penstock/v1/*.proto)
set(sources)
foreach(proto IN LISTS proto_files)
  get_filename_component(name ${proto} NAME_WE)
  file(STRINGS ${proto} services REGEX "^service ")
  set(outputs ${generated}/penstock/v1/${name}.pb.cc ${generated}/penstock/v1/${name}.pb.h)
  set(grpc)
  if(services)
    list(APPEND outputs ${generated}/penstock/v1/${name}.grpc.pb.cc ${generated}/penstock/v1/${name}.grpc.pb.h)
    set(grpc --grpc_out=${generated} --plugin=protoc-gen-grpc=$<TARGET_FILE:gRPC::grpc_cpp_plugin>)
  endif()
  add_custom_command(
    OUTPUT ${outputs}
    COMMAND protobuf::protoc -I ${CMAKE_SOURCE_DIR}/proto --cpp_out=${generated} ${grpc} ${proto}
    DEPENDS ${proto_files}
    COMMENT "protoc ${name}.proto")
  list(APPEND sources ${outputs})
endforeach()
add_library(penstock_proto STATIC ${sources})
target_include_directories(penstock_proto SYSTEM PUBLIC ${generated})
target_link_libraries(penstock_proto PUBLIC protobuf::libprotobuf gRPC::grpc++)
