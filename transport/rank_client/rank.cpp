// The functions of regrow/rank.h, over the one client of this process.
#include <pthread.h>

#include "transport/rank_client/client.h"

namespace {

// A C ABI has no place to hold it. Never destroyed: threads may report until the very end.
union Holder {
  constexpr Holder() : client() {}
  ~Holder() {}
  regrow::rank_client::Client client;
};
constinit Holder process;

pthread_once_t once = PTHREAD_ONCE_INIT;

regrow::rank_client::Client& client() {
  pthread_once(&once, [] {
    pthread_atfork([] { process.client.before_fork(); },
                   [] { process.client.after_fork_in_parent(); },
                   [] {
                     process.client.after_fork_in_child();
                     process.client.after_fork_in_parent();
                   });
  });
  return process.client;
}

}  // namespace

extern "C" {

int regrow_init(regrow_info* info) { return client().init(info); }

int regrow_step(int64_t step, double loss) { return client().step(step, loss); }

uint64_t regrow_generation(void) { return client().generation(); }

int regrow_finish(int timeout_ms) { return client().finish(timeout_ms); }

int regrow_on_regroup(regrow_regroup_fn call, void* argument) {
  return client().on_regroup(call, argument);
}

int regrow_rejoin(int64_t step, int intact, regrow_membership* out, int timeout_ms) {
  return client().rejoin(step, intact != 0, out, timeout_ms);
}

int regrow_checkpoint_saved(int64_t step, const char* path) { return client().saved(step, path); }
}
