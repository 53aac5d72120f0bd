#include "actors/agent/agent.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <kj/exception.h>

#include <memory>

#include "actors/agent/agent_session.h"
#include "actors/agent/allowed_users.h"
#include "actors/log.h"

namespace regrow {
namespace {

// Descriptors are needed per rank; ranks get limits of their own.
void raise_descriptor_limit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Blocks the signals that end the agent, in this thread and all that it starts.
sigset_t block_end_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return signals;
}

AgentOptions completed(AgentOptions options) {
  if (options.name.empty()) {
    char name[256] = {};
    gethostname(name, sizeof name - 1);
    options.name = name;
  }
  if (options.run_dir.empty()) options.run_dir = options.state_dir + "/run";
  if (options.address.empty()) options.address = "127.0.0.1";
  return options;
}

Result<HostLinkClientOptions> link_options(const AgentOptions& options) {
  auto address = parse_address(options.controller);
  if (!address) return address.error();
  HostLinkClientOptions link;
  link.address = *address;
  if (!options.certs_dir.empty()) link.tls = TlsFiles::in(options.certs_dir, options.name);
  if (address->is_tcp() && !link.tls) {
    return Error{kExitUsage,
                 "a controller on TCP needs certificates: make them with `regrow certs issue " +
                     options.name + "` and name their directory with --certs"};
  }
  return link;
}

int fail(const std::string& why) {
  log_error(why);
  return kExitUsage;
}

}  // namespace

int run_agent(const AgentOptions& given) {
  AgentOptions options = completed(given);
  open_log("agent " + options.name, options.verbose ? LogLevel::debug : LogLevel::info);
  sigset_t end_signals = block_end_signals();
  raise_descriptor_limit();
  if (access(options.shim.c_str(), X_OK) != 0) {
    return fail("regrow-shim is not at '" + options.shim + "'; name it with --shim");
  }
  auto link = link_options(options);
  if (!link) return fail(link.error().message);
  auto state = HostIdentity::open(options.state_dir, options.boot_id_file);
  if (!state) return fail(state.error().message);

  auto allowed = AllowedUsers::parse(options.allowed_users);
  if (!allowed) return fail(allowed.error().message);
  if (geteuid() == 0 && !allowed->any && allowed->uids.empty()) {
    log_warning("runs as root and may start ranks of nobody; name users with --allow-user");
  }

  KjLoop loop("agent", [](const std::string& error) { log_warning(error); });
  std::unique_ptr<AgentSession> session;
  std::string problem = loop.run_sync([&]() -> std::string {
    std::string text;
    KJ_IF_MAYBE (error, kj::runCatchingExceptions([&] {
                   session = std::make_unique<AgentSession>(loop, *state, options);
                 })) {
      text = error->getDescription().cStr();
    }
    return text;
  });
  if (!problem.empty()) return fail(problem);

  auto client = std::make_unique<HostLinkClient>(loop, *session, *link);
  loop.run_sync([&] { session->start(*client); });
  log_info("host " + options.name + " (uid " + state->uid() + ") runs, controller " +
           options.controller);

  int signal_number = 0;
  sigwait(&end_signals, &signal_number);
  log_info("ending by signal " + std::to_string(signal_number) +
           (options.end_ranks ? ", with the ranks" : ", ranks go on"));
  if (options.end_ranks) {
    auto ended = std::make_shared<std::promise<void>>();
    auto wait = ended->get_future();
    loop.post([&, ended] {
      loop.detach(session->end_ranks(*options.end_ranks).then([ended] { ended->set_value(); }));
    });
    wait.wait();
  }
  loop.run_sync([&] { session->stop(); });
  client.reset();
  loop.run_sync([&] { session.reset(); });
  loop.stop();
  return kExitOk;
}

}  // namespace regrow
