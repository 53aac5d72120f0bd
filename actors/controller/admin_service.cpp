#include "actors/controller/admin_service.h"

#include <unistd.h>

#include <caf/send.hpp>
#include <nlohmann/json.hpp>

#include "actors/controller/messages.h"
#include "actors/controller/router.h"
#include "journal/reflect_json.h"
#include "transport/connection.h"

namespace regrow {
namespace {

using Json = nlohmann::json;
template <class T>
using CrossThread = std::shared_ptr<kj::Own<kj::CrossThreadPromiseFulfiller<T>>>;

// A wrong argument, in words; becomes exit code 2.
struct BadArgument : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class T>
T argument(const Json& args, const char* name) {
  auto it = args.find(name);
  if (it == args.end()) throw BadArgument(std::string("argument \"") + name + "\" is missing");
  try {
    return it->get<T>();
  } catch (const Json::exception&) {
    throw BadArgument(std::string("argument \"") + name + "\" has the wrong type");
  }
}

template <class E>
E named(const Json& args, const char* name) {
  E value{};
  auto text = argument<std::string>(args, name);
  if (from_string(text, value)) return value;
  std::string known;
  for (auto candidate : enum_names(E{}))
    known += (known.empty() ? "" : ", ") + std::string(candidate);
  throw BadArgument("unknown " + std::string(name) + " \"" + text + "\"; known: " + known);
}

JobId job_argument(const Json& args) { return {argument<uint64_t>(args, "job")}; }

std::string or_missing(const std::optional<Json>& found, const std::string& what) {
  if (!found) throw BadArgument("there is no " + what);
  return dump_json(*found);
}

Json parse_args(const std::string& text) {
  Json args = text.empty() ? Json::object() : Json::parse(text, nullptr, false);
  if (args.is_discarded() || !args.is_object())
    throw BadArgument("the arguments are not a JSON object");
  return args;
}

template <class T>
kj::Promise<T> guarded(const std::function<kj::Promise<T>()>& body) {
  try {
    return body();
  } catch (const BadArgument& e) {
    return admin_error(kExitUsage, e.what());
  } catch (const JsonError& e) {
    return admin_error(kExitUsage, e.what());
  }
}

}  // namespace

std::string AdminService::status() const {
  Json out = views_.counts();
  out["cluster_id"] = facts_.cluster_id;
  out["epoch"] = facts_.epoch.number;
  out["version"] = facts_.version;
  out["state_dir"] = facts_.state_dir;
  out["pid"] = getpid();
  out["uptime_s"] = (context_.clock.now().time - facts_.started).us / 1000000;
  return dump_json(out);
}

kj::Promise<std::string> AdminService::show(const Json& args) {
  auto path = argument<std::string>(args, "entity");
  auto id = parse_entity_id(path);
  if (!id)
    throw BadArgument("\"" + path +
                      "\" names no entity; write cluster, host/NAME, job/N, group/N/G, rank/N/R or "
                      "device/HOST/NAME");
  auto base = views_.show(*id);
  if (!base) throw BadArgument("there is no " + path);
  auto actor = context_.directory.find(*id);
  if (!actor) {
    (*base)["actor"] = {{"alive", false}};
    return dump_json(*base);
  }
  auto paf = kj::newPromiseAndCrossThreadFulfiller<std::string>();
  auto reply = std::make_shared<kj::Own<kj::CrossThreadPromiseFulfiller<std::string>>>(
      kj::mv(paf.fulfiller));
  auto views = views_;
  auto done = [reply, views, id = *id](std::shared_ptr<const msg::Inspection> seen) {
    // Read after the actor answered: what it had decided then is durable by now or will be shortly.
    auto json = views.show(id).value_or(Json::object());
    bool equal = std::visit(
        [&](const auto& s) -> bool {
          if constexpr (std::is_same_v<std::decay_t<decltype(s)>, std::monostate>)
            return json["state"].is_null();
          else
            return to_json(s) == json["state"];
        },
        seen->state);
    Json state = std::visit(
        [](const auto& s) -> Json {
          if constexpr (std::is_same_v<std::decay_t<decltype(s)>, std::monostate>)
            return nullptr;
          else
            return to_json(s);
        },
        seen->state);
    Json decisions = Json::array();
    for (const PastDecision& d : seen->decisions)
      decisions.push_back({{"at_us", d.at.us}, {"input", d.input}, {"outcome", d.outcome}});
    json["actor"] = {
        {"alive", true},  {"mailbox", seen->mailbox},  {"restarts", seen->restarts}, {"n", seen->n},
        {"state", state}, {"equal_to_journal", equal}, {"decisions", decisions}};
    (*reply)->fulfill(dump_json(json));
  };
  caf::anon_send(*actor, msg::Inspect{done});
  return kj::mv(paf.promise);
}

kj::Promise<std::string> AdminService::query(const PeerIdentity&, std::string what,
                                             std::string text) {
  return guarded<std::string>([&]() -> kj::Promise<std::string> {
    Json args = parse_args(text);
    if (what == "status") return status();
    if (what == "jobs") return dump_json(views_.jobs(args.value("all", false)));
    if (what == "hosts") return dump_json(views_.hosts());
    if (what == "devices") return dump_json(views_.devices(args.value("host", "")));
    if (what == "job")
      return or_missing(views_.job(job_argument(args)),
                        "job/" + std::to_string(job_argument(args).value));
    if (what == "ranks")
      return or_missing(views_.ranks(job_argument(args)),
                        "job/" + std::to_string(job_argument(args).value));
    if (what == "show") return show(args);
    if (what == "children") {
      auto id = parse_entity_id(argument<std::string>(args, "entity"));
      if (!id) throw BadArgument("that names no entity");
      return dump_json(views_.children(*id));
    }
    if (what == "events") {
      std::optional<uint64_t> from;
      if (args.contains("from")) from = argument<uint64_t>(args, "from");
      std::string entity = args.value("entity", "");
      if (!entity.empty()) {
        auto id = parse_entity_id(entity);
        if (!id || !context_.projection.find(*id)) throw BadArgument("there is no " + entity);
      }
      return dump_json(views_.events(entity, from, args.value("limit", 100)));
    }
    if (what == "plan")
      return dump_json(views_.plan(from_json<JobSpec>(args.value("spec", Json::object()))));
    return admin_error(kExitUsage, "there is no question \"" + what + "\"");
  });
}

kj::Promise<std::string> AdminService::ask_entity(const PeerIdentity& who, EntityId to,
                                                  Input input) {
  auto paf = kj::newPromiseAndCrossThreadFulfiller<Reply>();
  auto fulfiller =
      std::make_shared<kj::Own<kj::CrossThreadPromiseFulfiller<Reply>>>(kj::mv(paf.fulfiller));
  Envelope envelope{std::move(to), {}, {}, Actor{who.who, to_string(who.role)}, std::move(input)};
  std::string path = envelope.to.path;
  envelope.request = context_.replies.expect(
      envelope.to,
      [fulfiller](const Reply& reply) {
        Reply copy = reply;
        (*fulfiller)->fulfill(kj::mv(copy));
      },
      [fulfiller, path] {
        (*fulfiller)
            ->fulfill(
                Reply{{},
                      false,
                      "an error inside regrow struck " + path +
                          ", which goes on from its journal; whether it did what you asked is "
                          "not known: see `regrow show " +
                          path + "`, then ask again",
                      {}});
      });
  post(context_, std::move(envelope));
  return paf.promise.then([](Reply reply) -> kj::Promise<std::string> {
    if (!reply.ok) return admin_error(kExitUsage, reply.message);
    return dump_json({{"message", reply.message}, {"job", reply.job.value}});
  });
}

namespace {

// Passes the answer to a submission on when the job's own first events are visible: whoever is told
// its number may ask about it at once.
kj::Promise<std::string> when_visible(const Context& context, std::string answer) {
  auto actor = context.directory.find(EntityId::job({Json::parse(answer)["job"].get<uint64_t>()}));
  if (!actor) return kj::mv(answer);
  auto paf = kj::newPromiseAndCrossThreadFulfiller<bool>();
  auto fulfiller =
      std::make_shared<kj::Own<kj::CrossThreadPromiseFulfiller<bool>>>(kj::mv(paf.fulfiller));
  caf::anon_send(*actor, msg::WhenVisible{[fulfiller] { (*fulfiller)->fulfill(true); }});
  // If the actor dies meanwhile the job is accepted all the same.
  return paf.promise.catch_([](kj::Exception&&) { return false; })
      .then([answer = std::move(answer)](bool) mutable { return std::move(answer); });
}

}  // namespace

kj::Promise<std::string> AdminService::submit(const PeerIdentity& who, const Json& args) {
  auto spec = args.find("spec");
  if (spec == args.end()) throw BadArgument("argument \"spec\" is missing");
  JobSpec job = from_json<JobSpec>(*spec);
  if (job.ranks == 0 || job.command.empty()) throw BadArgument("the job needs ranks and a command");
  // Ranks run as who submitted, whatever the spec says. Root may name somebody else, and so may who
  // comes over TCP, where no uid is known: each host's agent has the last word (AllowedUsers).
  if (who.transport == "unix" && who.uid > 0) job.uid = static_cast<uint32_t>(who.uid);
  return ask_entity(who, EntityId::cluster(), in::Submit{args.value("key", ""), std::move(job)})
      .then([&context = context_](std::string answer) {
        return when_visible(context, std::move(answer));
      });
}

kj::Promise<std::string> AdminService::fault(const PeerIdentity& who, const std::string& what,
                                             const Json& args) {
  HostName host;
  AgentCommand command;
  std::string message;
  if (what == "fault_kill_rank") {
    JobId job = job_argument(args);
    RankIndex rank{argument<uint32_t>(args, "rank")};
    auto view = context_.projection.find(EntityId::rank(job, rank));
    if (!view)
      throw BadArgument("rank " + std::to_string(rank.value) + " of job " +
                        std::to_string(job.value) + " is not there or was never started");
    const RankState& s = std::get<RankState>(view->state);
    if (s.process != Process::running)
      throw BadArgument("rank " + std::to_string(rank.value) +
                        " is not running: " + std::string(to_string(s.process)));
    host = s.host;
    int signal = args.value("signal", 9);
    command = SignalRank{s.command.key, signal};
    message = "signal " + std::to_string(signal) + " to pid " + std::to_string(s.pid) + ", rank " +
              std::to_string(rank.value) + " of job " + std::to_string(job.value) + " on " +
              host.value;
  } else {
    host = {argument<std::string>(args, "host")};
    if (what == "fault_cut_link") {
      auto seconds = argument<double>(args, "seconds");
      if (!(seconds > 0 && seconds <= 86400))
        throw BadArgument("the link can be cut for up to a day");
      command = CutLink{Duration{static_cast<int64_t>(seconds * 1e6)}};
      message = "link of " + host.value + " is cut for " + Json(seconds).dump() + " s";
    } else {
      auto fault = args.value("fault", "");
      DeviceName device{argument<std::string>(args, "device")};
      EntityId id = EntityId::device(host, device);
      if (!context_.projection.find(id)) throw BadArgument("there is no " + id.path);
      command = SetDeviceFault{device, fault};
      message = device.value + (fault.empty() ? " is healed" : " has a fault now: " + fault);
    }
  }
  SessionId session = board_.session(host);
  if (session.value == 0) throw BadArgument("host " + host.value + " is not connected");
  return ask_entity(who, EntityId::host(host), in::NoteFault{message})
      .then([this, session, command = std::move(command)](std::string answer) mutable {
        commands_.send(session, {std::move(command)});
        return answer;
      });
}

kj::Promise<std::string> AdminService::act(const PeerIdentity& who, std::string what,
                                           std::string text, std::string reason) {
  return guarded<std::string>([&]() -> kj::Promise<std::string> {
    Json args = parse_args(text);
    if (reason.empty()) reason = "no reason given";
    if (what == "submit") return submit(who, args);
    if (what == "set_desired")
      return ask_entity(who, EntityId::job(job_argument(args)),
                        in::SetDesired{named<Desired>(args, "desired"), reason});
    if (what == "host_admin")
      return ask_entity(who, EntityId::host({argument<std::string>(args, "host")}),
                        in::SetHostAdmin{named<HostAdmin>(args, "admin"), reason});
    if (what == "fault_device" || what == "fault_kill_rank" || what == "fault_cut_link")
      return fault(who, what, args);
    return admin_error(kExitUsage, "there is no action \"" + what + "\"");
  });
}

kj::Promise<uint64_t> AdminService::watch(const PeerIdentity&, WatchRequest request,
                                          WatchSink sink) {
  if (!request.entity.empty() && !parse_entity_id(request.entity))
    return admin_error(kExitUsage, "\"" + request.entity + "\" names no entity");
  uint64_t first =
      request.from_seq == kOnlyNew ? context_.projection.last_seq() + 1 : request.from_seq;
  request.from_seq = first;
  caf::anon_send(watches_, msg::AddWatch{std::move(request), sink});
  return first;
}

kj::Promise<LogChunk> AdminService::read_log(const PeerIdentity&, LogQuery query) {
  auto view = context_.projection.find(EntityId::rank(query.job, query.rank));
  if (!view)
    return admin_error(kExitUsage, "there is no " + EntityId::rank(query.job, query.rank).path);
  const RankState& rank = std::get<RankState>(view->state);
  HostName host = rank.host;
  if (query.incarnation.value == 0) query.incarnation = rank.command.key.incarnation;
  for (const PastIncarnation& past : rank.past) {
    if (past.incarnation == query.incarnation) host = past.host;
  }
  SessionId session = board_.session(host);
  if (session.value == 0)
    return admin_error(kExitJobFailed,
                       "the log is on host " + host.value + ", which is not connected now");
  // Whatever goes wrong on the way to the host: this controller can be reached.
  return link_->read_log(session, query).catch_([host](kj::Exception&& e) -> kj::Promise<LogChunk> {
    return admin_error(kExitJobFailed,
                       "the log on host " + host.value + " cannot be read now: " + text_of(e));
  });
}

}  // namespace regrow
