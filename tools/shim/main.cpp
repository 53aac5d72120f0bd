// regrow-shim DIRECTORY: keeps one rank; started by the agent, see actors/agent/shim_protocol.h.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "actors/agent/shim_protocol.h"
#include "tools/shim/shim.h"

namespace {

// True if the directory is ours: the lock is held from now on and nothing has ended here before.
// Without it some agent may already have declared that this incarnation never started.
bool take_lock() {
  int fd = open("lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0) return false;
  return access("exit", F_OK) != 0 && access("pid", F_OK) != 0;
}

regrow::shim::Shim the_shim;  // large; not on the stack

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && strcmp(argv[1], "--version") == 0) {
    printf("regrow-shim protocol %d\n", regrow::shim::kProtocolVersion);
    return 0;
  }
  if (argc != 2) {
    fprintf(stderr, "usage: regrow-shim DIRECTORY\nStarted by 'regrow agent' once per rank.\n");
    return 2;
  }
  if (chdir(argv[1]) != 0 || !take_lock()) return 1;
  setsid();
  // Descriptors 0, 1, 2 must be taken, or a pipe would get one of them.
  int fd;
  do {
    fd = open("/dev/null", O_RDWR | O_CLOEXEC);
  } while (fd >= 0 && fd <= 2);
  close(fd);
  signal(SIGPIPE, SIG_IGN);
  return the_shim.run();
}
