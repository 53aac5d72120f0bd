#include "tests/fuzz/targets.h"

#include <cstdio>
#include <cstdlib>

namespace regrow::fuzz {

const std::vector<Target>& targets() {
  static const std::vector<Target> all{{"recipe", recipe},         {"record", record},
                                       {"start_file", start_file}, {"pid_file", pid_file},
                                       {"exit_file", exit_file},   {"rank_path", rank_path},
                                       {"rank_frame", rank_frame}};
  return all;
}

void must(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

}  // namespace regrow::fuzz
