#include "client/main/command_line.h"

int main(int argc, char** argv) {
  return penstock::client::run_command_line(argc, argv);
}
