#include "actors/controller/controller.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <caf/all.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

#include "actors/controller/admin_service.h"
#include "actors/controller/entity_actor.h"
#include "actors/controller/journal_actor.h"
#include "actors/controller/link_handler.h"
#include "actors/controller/messages.h"
#include "actors/controller/old_copy.h"
#include "actors/controller/router.h"
#include "actors/controller/watch_actor.h"
#include "actors/log.h"
#include "journal/raise_numbers.h"
#include "journal/rocks_journal.h"
#include "transport/kj_loop.h"
#include "transport/rpc_server.h"

namespace regrow {
namespace {

namespace fs = std::filesystem;
constexpr int kExitRestart = 75;  // EX_TEMPFAIL

uint64_t random_id() {
  std::random_device device;
  return (uint64_t(device()) << 32 | device()) | 1;
}

std::string random_name() {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string name;
  for (uint64_t id = random_id(); name.size() < 12; id >>= 4) name += kHex[id & 15];
  return name;
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Everything of a running controller, in order of making.
class Controller {
 public:
  explicit Controller(const ControllerOptions& options) : options_(options) {}

  int run();

 private:
  std::string journal_directory() const { return options_.state_dir + "/journal"; }
  Status open_journal();
  Status recover_epoch(uint64_t seen_epoch);
  void start_actors();
  void wait_for_tree();
  void resume_all();
  Status start_listening();
  void stop();
  RoleRules roles() const;

  const ControllerOptions& options_;
  std::unique_ptr<RocksJournal> journal_;
  const Journal* journal_view_ = nullptr;  // owned by the journal actor from start_actors on
  std::unique_ptr<Context> context_;
  LiveBoard board_;
  Epoch epoch_;
  std::string cluster_id_;
  caf::actor_system_config config_;
  std::unique_ptr<caf::actor_system> system_;
  caf::actor watches_;
  std::unique_ptr<KjLoop> loop_;
  std::unique_ptr<LinkHandler> link_handler_;
  std::unique_ptr<AdminService> admin_service_;
  std::unique_ptr<HostLinkServer> link_;
  std::unique_ptr<AdminServer> admin_;
  std::unique_ptr<RpcServer> rpc_;
};

Status Controller::open_journal() {
  auto old_copy = read_old_copy(journal_directory());
  if (old_copy && !options_.recover_epoch)
    return Error{kExitRestart, explain(*old_copy, journal_directory())};
  if (!old_copy && options_.recover_epoch)
    log_warning("--recover-epoch: no agent has shown this journal to be an old copy; not needed");
  RocksJournalOptions journal_options;
  journal_options.directory = journal_directory();
  journal_options.on_warning = [](const std::string& text) { log_warning(text); };
  auto opened = RocksJournal::open(journal_options);
  if (!opened) return Error{kExitUsage, opened.error().message};
  journal_ = std::move(*opened);

  auto newest = journal_->last_seq() == 0 ? JournalResult<std::optional<EventRecord>>(std::nullopt)
                                          : journal_->get(journal_->last_seq());
  if (!newest) return Error{kExitUsage, newest.error().message};
  Time not_before = *newest ? (*newest)->at : Time{};
  context_ = std::make_unique<Context>(not_before, options_.fault_points);
  auto loaded = load_projection(*journal_, context_->projection, {.program = options_.version});
  if (!loaded) return Error{kExitUsage, loaded.error().message};
  log_info("journal: " + std::to_string(context_->projection.last_seq()) + " events, " +
           std::to_string(context_->projection.size()) + " entities (" +
           std::to_string(loaded->from_snapshots) + " from snapshots, " +
           std::to_string(loaded->events) + " events replayed)");
  for (const EntityView& view : context_->projection.quarantined())
    log_error(view.id.path + " is quarantined: " + view.quarantined);
  if (old_copy) {
    if (auto recovered = recover_epoch(old_copy->seen_epoch); !recovered) return recovered;
  }
  context_->faults.hit("boot.after_replay");

  if (auto view = context_->projection.find(EntityId::cluster())) {
    const auto& cluster = std::get<ClusterState>(view->state);
    cluster_id_ = cluster.cluster_id;
    epoch_.number = cluster.epoch.number;
  }
  if (cluster_id_.empty()) cluster_id_ = random_name();
  epoch_ = {epoch_.number + 1, random_id()};
  return Nothing{};
}

// The mark goes last: a crash before that raises the numbers once more, which harms nobody.
Status Controller::recover_epoch(uint64_t seen_epoch) {
  RaiseRequest request;
  request.why = "an operator made an old copy of the journal the one that counts (--recover-epoch)";
  request.seen_epoch = seen_epoch;
  request.by = {"uid " + std::to_string(getuid()), "operator"};
  request.not_before = context_->projection.last_at();
  auto raised = raise_numbers(*journal_, request);
  if (!raised) return Error{kExitUsage, raised.error().message};
  if (*raised) {
    context_->projection.apply(**raised);
    log_warning((*raised)->reason);
  }
  if (auto problem = remove_old_copy_mark(journal_directory()); !problem.empty())
    return Error{kExitUsage, problem};
  return Nothing{};
}

void Controller::start_actors() {
  config_.set("scheduler.policy", caf::atom("sharing"));
  config_.set("scheduler.max-threads", size_t(2));
  config_.set("logger.verbosity", caf::atom("quiet"));
  system_ = std::make_unique<caf::actor_system>(config_);
  context_->board = &board_;
  context_->fatal = [](const std::string& why) {
    log_error(why);
    std::_Exit(kExitRestart);
  };
  journal_view_ = journal_.get();
  watches_ = system_->spawn<caf::detached>(watch_actor, journal_view_, context_->fatal);
  link_handler_ = std::make_unique<LinkHandler>(
      *context_, board_, LinkFacts{cluster_id_, epoch_, journal_directory()});
  context_->effects =
      system_->spawn(effect_runner, context_.get(), static_cast<CommandSink*>(link_handler_.get()));
  auto handed_over = std::make_shared<std::unique_ptr<Journal>>(std::move(journal_));
  context_->journal = system_->spawn<caf::detached>(journal_actor, context_.get(), handed_over,
                                                    options_.version, watches_);
  auto tree = std::make_shared<const ChildrenMap>(children_of(context_->projection));
  context_->directory.set(
      EntityId::cluster(),
      system_->spawn(entity_actor, context_.get(), EntityId::cluster(), 0u, tree), EntityId());
}

// Actors come to life on worker threads, parents before children: waits until the whole tree has.
void Controller::wait_for_tree() {
  caf::scoped_actor self{*system_};
  std::set<EntityId> ready;
  for (bool grew = true; grew;) {
    grew = false;
    for (const auto& [id, actor] : context_->directory.all()) {
      if (!ready.insert(id).second) continue;
      grew = true;
      self->request(actor, caf::infinite, msg::Ready{}).receive([](bool) {}, [](caf::error&) {});
    }
  }
}

// From the leaves up, each kind waiting for the one before: when a host hears from its agent, every
// rank has told it what may run there.
void Controller::resume_all() {
  caf::scoped_actor self{*system_};
  auto cluster = context_->directory.find(EntityId::cluster());
  self->send(
      *cluster,
      msg::Deliver{std::make_shared<const Envelope>(Envelope{
          EntityId::cluster(), {}, {}, {}, in::StartTerm{cluster_id_, epoch_, options_.version}})});
  auto actors = context_->directory.all();
  for (EntityKind kind : {EntityKind::rank, EntityKind::group, EntityKind::job, EntityKind::device,
                          EntityKind::host, EntityKind::cluster}) {
    std::vector<caf::actor> of_kind;
    for (const auto& [id, actor] : actors) {
      if (id.kind() == kind) of_kind.push_back(actor);
    }
    for (const caf::actor& actor : of_kind) {
      self->request(actor, caf::infinite, msg::Resume{})
          .receive([](bool) {},
                   [](caf::error&) { log_warning("an actor died while it was resumed"); });
    }
  }
  self->request(context_->journal, caf::infinite, msg::Barrier{})
      .receive([](bool) {}, [](caf::error&) {});
  context_->faults.hit("boot.after_resume");
}

RoleRules Controller::roles() const {
  RoleRules rules;
  rules.own_uid = getuid();
  rules.operator_uids.assign(options_.operator_uids.begin(), options_.operator_uids.end());
  rules.agent_uids.assign(options_.agent_uids.begin(), options_.agent_uids.end());
  return rules;
}

Status Controller::start_listening() {
  loop_ = std::make_unique<KjLoop>("kj", [](const std::string& error) { log_warning(error); });
  ServiceFacts facts{cluster_id_, epoch_, options_.version, options_.state_dir,
                     context_->clock.now().time};
  admin_service_ =
      std::make_unique<AdminService>(*context_, Views(context_->projection, board_, *journal_view_),
                                     *link_handler_, board_, watches_, facts);
  // Session ids differ between terms: the epoch is their upper half.
  link_ = std::make_unique<HostLinkServer>(*loop_, *link_handler_, HostLinkServerOptions{},
                                           epoch_.number << 32);
  AdminServerOptions admin_options;
  admin_options.cluster_id = cluster_id_;
  admin_options.version = options_.version;
  admin_options.epoch = epoch_.number;
  admin_ = std::make_unique<AdminServer>(*loop_, *admin_service_, admin_options);
  link_handler_->set_link(link_.get());
  admin_service_->set_link(link_.get());
  rpc_ = std::make_unique<RpcServer>(*loop_, link_.get(), admin_.get());
  auto addresses = options_.listen;
  if (addresses.empty()) addresses.push_back("unix:" + options_.state_dir + "/regrow.sock");
  for (const std::string& text : addresses) {
    auto address = parse_address(text);
    if (!address) return address.error();
    ListenOptions listen;
    listen.address = *address;
    listen.roles = roles();
    listen.socket_mode = options_.socket_for_all ? 0666 : 0600;
    if (!options_.certs_dir.empty())
      listen.tls = TlsFiles{options_.certs_dir + "/ca.pem", options_.certs_dir + "/controller.pem",
                            options_.certs_dir + "/controller.key"};
    auto bound = rpc_->listen(std::move(listen));
    if (!bound) return bound.error();
    log_info("listening on " + to_string(*bound));
  }
  return Nothing{};
}

void Controller::stop() {
  rpc_.reset();
  {
    caf::scoped_actor self{*system_};
    for (const auto& [id, actor] : context_->directory.all())
      caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(context_->effects, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(watches_, caf::exit_reason::user_shutdown);
    self->wait_for(watches_);
    self->request(context_->journal, caf::infinite, msg::CloseJournal{})
        .receive([](bool) {}, [](caf::error&) {});
  }
  admin_.reset();
  link_.reset();
  loop_.reset();
}

int Controller::run() {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  signal(SIGPIPE, SIG_IGN);
  if (auto opened = open_journal(); !opened) {
    log_error(opened.error().message);
    return opened.error().exit_code;
  }
  start_actors();
  wait_for_tree();
  resume_all();
  if (auto listening = start_listening(); !listening) {
    log_error(listening.error().message);
    stop();
    return listening.error().exit_code;
  }
  std::ofstream(options_.state_dir + "/controller.pid") << getpid() << "\n";
  log_info("ready: cluster " + cluster_id_ + ", epoch " + std::to_string(epoch_.number));
  // The clock has to be looked at often, so that a pause of this process shows.
  timespec beat{0, EngineClock::kBeat.us * 1000};
  int signal = -1;
  while (signal < 0) {
    signal = sigtimedwait(&ends, nullptr, &beat);
    context_->clock.now();
  }
  log_info("stopping; ranks run on");
  stop();
  unlink((options_.state_dir + "/controller.pid").c_str());
  return 0;
}

}  // namespace

int run_controller(const ControllerOptions& options) {
  open_log("controller", options.verbose ? LogLevel::debug : LogLevel::info);
  raise_descriptor_limit();
  std::error_code error;
  fs::create_directories(options.state_dir, error);
  if (error) {
    log_error("state directory " + options.state_dir + ": " + error.message());
    return kExitUsage;
  }
  try {
    FaultPoints check(options.fault_points);
  } catch (const std::invalid_argument& e) {
    log_error(e.what());
    return kExitUsage;
  }
  auto controller = std::make_unique<Controller>(options);
  int code = controller->run();
  // Actors with a pending timer would hold up the actor system's destructor; everything is on disk.
  controller.release();
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace regrow
