// The admin service through its blocking client.
#include <nlohmann/json.hpp>

#include "tests/transport/support.h"
#include "transport/admin_client.h"

using namespace regrow;
using namespace regrow::test;

namespace {

AdminServerOptions fast_heartbeat() {
  AdminServerOptions options;
  options.cluster_id = "c-1";
  options.version = "0.1.0";
  options.epoch = 4;
  options.watch_heartbeat = Duration::ms(50);
  return options;
}

std::string event(uint64_t seq) { return nlohmann::json{{"seq", seq}, {"kind", "test"}}.dump(); }

struct Watcher {
  struct Seen {
    std::vector<uint64_t> seqs;
    std::vector<std::string> states;
    std::vector<Error> failed;
  };
  Shared<Seen> seen;
  WatchCallbacks callbacks() {
    return {[this](const std::vector<std::string>& lines) {
              seen.with([&](Seen& s) {
                for (auto& l : lines)
                  s.seqs.push_back(nlohmann::json::parse(l).at("seq").get<uint64_t>());
              });
            },
            [this](const std::string& t) { seen.with([&](Seen& s) { s.states.push_back(t); }); },
            [this](const Error& e) { seen.with([&](Seen& s) { s.failed.push_back(e); }); }};
  }
  std::vector<uint64_t> seqs() {
    return seen.with([](Seen& s) { return s.seqs; });
  }
};

std::optional<WatchSink> last_sink(TestController& c, size_t wanted) {
  std::optional<WatchSink> sink;
  REQUIRE(eventually([&] {
    return c.canned.seen.with([&](auto& s) {
      if (s.sinks.size() >= wanted) sink = s.sinks.back();
      return s.sinks.size() >= wanted;
    });
  }));
  return sink;
}

}  // namespace

TEST_CASE("hello, questions, actions and logs") {
  TempDir dir;
  TestController controller({}, fast_heartbeat());
  AdminClient client({.address = controller.listen_unix(dir), .version = "0.1.0"});
  auto hello = client.connect();
  REQUIRE(hello);
  CHECK(hello->who == "uid:" + std::to_string(getuid()));
  CHECK(hello->role == "operator");
  CHECK(hello->cluster_id == "c-1");
  CHECK(hello->epoch == 4);
  auto answer = client.query("echo", {{"job", 7}, {"text", "x\ny"}});
  REQUIRE(answer);
  CHECK((*answer)["job"] == 7);
  CHECK(client.query("big", {})->get<std::string>().size() == 8u << 20);
  CHECK((*client.act("cancel", {{"job", 7}}, "why not"))["done"] == true);
  auto chunk = client.read_log({.job = {1}, .rank = {3}});
  REQUIRE(chunk);
  CHECK(chunk->data == "log of rank 3");
}

TEST_CASE("errors come back with exit code and message") {
  TempDir dir;
  TestController controller;
  AdminClient client({.address = controller.listen_unix(dir)});
  auto wrong = client.query("nonsense", {});
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().exit_code == kExitUsage);
  CHECK(wrong.error().message == "there is no question \"nonsense\":\ntry \"echo\"");
  auto bug = client.query("throw", {});
  REQUIRE_FALSE(bug);
  CHECK(bug.error().exit_code == kExitUnreachable);
  CHECK(bug.error().message.find("a bug") != std::string::npos);
  CHECK(parse_admin_error("x: regrow:17:hello: world").exit_code == 17);
  CHECK(parse_admin_error("x: regrow:17:hello: world").message == "hello: world");
  CHECK(parse_admin_error("regrow:x:y").exit_code == kExitUnreachable);
  CHECK(parse_admin_error("regrow:99999999999:y").exit_code == kExitUnreachable);
}

TEST_CASE("no controller is an error that says what to do, at once") {
  TempDir dir;
  auto start = std::chrono::steady_clock::now();
  AdminClient client({.address = dir.socket("none")});
  auto hello = client.connect();
  REQUIRE_FALSE(hello);
  CHECK(hello.error().exit_code == kExitUnreachable);
  CHECK(hello.error().message.find("there is no such socket. Start one with `regrow dev`") !=
        std::string::npos);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(3));
  // A later one is found.
  TestController controller;
  controller.listen({.address = dir.socket("none"), .roles = own_rules()});
  CHECK(client.connect());
}

TEST_CASE("a controller that answers nothing is an error, a slow answer is not") {
  TempDir dir;
  TestController controller;
  AdminClientOptions options{.address = controller.listen_unix(dir)};
  options.silence_limit = Duration::ms(500);
  options.connect_timeout = Duration::ms(500);
  options.call_timeout = Duration::ms(2500);
  AdminClient client(options);
  REQUIRE(client.connect());

  SECTION("busy with the question, but alive: waits, up to the call's time-out") {
    std::thread answer([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(1200));
      controller.canned.seen.with([](auto& s) { s.stuck.at(0)->fulfill(std::string("\"late\"")); });
    });
    auto late = client.query("stuck", {});
    answer.join();
    REQUIRE(late);
    CHECK(*late == "late");
    auto never = client.query("stuck", {});
    REQUIRE_FALSE(never);
    CHECK(never.error().message.find("although it is alive") != std::string::npos);
  }
  SECTION("stopped") {
    std::promise<void> go_on;
    controller.loop.post([f = go_on.get_future().share()] { f.wait(); });
    auto start = std::chrono::steady_clock::now();
    auto silent = client.query("echo", {});
    REQUIRE_FALSE(silent);
    CHECK(silent.error().exit_code == kExitUnreachable);
    CHECK(silent.error().message.find("has not answered for 500 ms") != std::string::npos);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::milliseconds(2400));
    AdminClient other(options);
    auto hello = other.connect();
    REQUIRE_FALSE(hello);
    CHECK(hello.error().message.find("no answer within 500 ms") != std::string::npos);
    go_on.set_value();
    CHECK(eventually([&] { return client.query("echo", {}).ok(); }));
  }
  SECTION("gone in the middle of a question, then back") {
    std::thread killer([&] {
      eventually(
          [&] { return controller.canned.seen.with([](auto& s) { return s.stuck.size(); }) == 1; });
      controller.canned.seen.with([](auto& s) { s.stuck.clear(); });
    });
    auto dropped = client.query("stuck", {});
    killer.join();
    REQUIRE_FALSE(dropped);
    CHECK(dropped.error().exit_code == kExitUnreachable);
  }
}

TEST_CASE("a watch gets every event once and in order, over controller restarts") {
  TempDir dir;
  auto controller = std::make_unique<TestController>(HostLinkServerOptions{}, fast_heartbeat());
  AdminClient client({.address = controller->listen_unix(dir)});
  Watcher watcher;
  auto watch = client.watch({.from_seq = 5, .entity = "job/7"}, watcher.callbacks());
  auto sink = last_sink(*controller, 1);
  controller->canned.seen.with([](auto& s) {
    CHECK(s.watches[0].from_seq == 5);
    CHECK(s.watches[0].entity == "job/7");
  });
  CHECK(sink->send({event(5), event(6)}));
  CHECK(sink->send({event(7)}));
  REQUIRE(eventually([&] { return watcher.seqs().size() == 3; }));

  controller.reset();
  CHECK_FALSE(sink->send({event(8)}));
  CHECK(sink->closed());
  REQUIRE(
      eventually([&] { return watcher.seen.with([](auto& s) { return s.states.size(); }) >= 2; }));

  controller = std::make_unique<TestController>(HostLinkServerOptions{}, fast_heartbeat());
  controller->listen_unix(dir);
  sink = last_sink(*controller, 1);
  CHECK(controller->canned.seen.with([](auto& s) { return s.watches[0].from_seq; }) == 8);
  CHECK(sink->send({event(7), event(8), event(9)}));  // 7 came before
  REQUIRE(eventually([&] { return watcher.seqs().size() == 5; }));
  CHECK(watcher.seqs() == std::vector<uint64_t>{5, 6, 7, 8, 9});
  CHECK(watch->next_seq() == 10);
  watcher.seen.with([](auto& s) {
    CHECK(s.states.front().empty());
    CHECK(s.states.back().empty());
    CHECK(s.failed.empty());
  });
  watch.reset();
  CHECK(eventually([&] { return sink->closed(); }));
  CHECK(eventually(
      [&] { return controller->canned.seen.with([](auto& s) { return s.closed; }) == 1; }));
}

TEST_CASE("only new events: the first number comes from the controller") {
  TempDir dir;
  TestController controller({}, fast_heartbeat());
  AdminClient client({.address = controller.listen_unix(dir)});
  Watcher watcher;
  auto watch = client.watch({.from_seq = kOnlyNew}, watcher.callbacks());
  REQUIRE(eventually([&] { return watch->next_seq() == 50; }));
  last_sink(controller, 1)->send({event(60)});
  CHECK(eventually([&] { return watch->next_seq() == 61; }));
}

TEST_CASE("a watch that is refused fails and does not come back") {
  TempDir dir;
  TestController controller;
  AdminClient client({.address = controller.listen_unix(dir)});
  Watcher watcher;
  auto watch = client.watch({.from_seq = 0, .entity = "job/404"}, watcher.callbacks());
  REQUIRE(
      eventually([&] { return watcher.seen.with([](auto& s) { return s.failed.size(); }) == 1; }));
  watcher.seen.with([](auto& s) {
    CHECK(s.failed[0].exit_code == kExitUsage);
    CHECK(s.failed[0].message == "there is no job 404");
  });
}

TEST_CASE("a watch notices a controller that sends nothing, heartbeats included") {
  TempDir dir;
  TestController controller({}, fast_heartbeat());
  AdminClientOptions options{.address = controller.listen_unix(dir)};
  options.silence_limit = Duration::ms(600);
  options.connect_timeout = Duration::ms(500);
  AdminClient client(options);
  Watcher watcher;
  auto watch = client.watch({.from_seq = 1}, watcher.callbacks());
  last_sink(controller, 1);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  // Heartbeats alone keep it up.
  CHECK(watcher.seen.with([](auto& s) { return s.states; }) == std::vector<std::string>{""});
  std::promise<void> go_on;
  controller.loop.post([f = go_on.get_future().share()] { f.wait(); });
  CHECK(eventually([&] {
    return watcher.seen.with([](auto& s) {
      return s.states.size() >= 2 &&
             s.states[1].find("sent nothing for 600 ms") != std::string::npos;
    });
  }));
  go_on.set_value();
  last_sink(controller, 2)->send({event(1)});
  CHECK(eventually([&] { return watcher.seqs() == std::vector<uint64_t>{1}; }));
}

TEST_CASE("a reader that is too slow is ended and goes on from where it was") {
  TempDir dir;
  auto options = fast_heartbeat();
  options.max_queued_bytes = 200000;
  TestController controller({}, options);
  AdminClient client({.address = controller.listen_unix(dir)});
  Watcher watcher;
  std::promise<void> go_on;
  auto gate = go_on.get_future().share();
  auto callbacks = watcher.callbacks();
  auto record = callbacks.on_lines;
  callbacks.on_lines = [&](const std::vector<std::string>& lines) {
    gate.wait();
    record(lines);
  };
  auto watch = client.watch({.from_seq = 0}, callbacks);
  auto sink = last_sink(controller, 1);
  uint64_t seq = 0;
  std::string padding(1000, 'x');
  while (seq < 100000) {
    auto line = nlohmann::json{{"seq", seq}, {"text", padding}}.dump();
    if (!sink->send({line})) break;
    ++seq;
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
  CHECK(seq < 100000);
  go_on.set_value();
  auto again = last_sink(controller, 2);
  auto from = controller.canned.seen.with([](auto& s) { return s.watches.back().from_seq; });
  CHECK(from <= seq);
  for (uint64_t i = from; i < from + 20; ++i) again->send({event(i)});
  REQUIRE(eventually([&] { return watcher.seqs().size() == from + 20; }));
  auto seqs = watcher.seqs();
  bool contiguous = true;
  for (size_t i = 0; i < seqs.size(); ++i) contiguous = contiguous && seqs[i] == i;
  CHECK(contiguous);
}

TEST_CASE("a watch may be ended from its own callback") {
  TempDir dir;
  TestController controller({}, fast_heartbeat());
  AdminClient client({.address = controller.listen_unix(dir)});
  std::unique_ptr<AdminWatch> watch;
  std::promise<void> ended;
  std::atomic<bool> ready = false;
  WatchCallbacks callbacks;
  callbacks.on_lines = [&](const std::vector<std::string>&) {
    while (!ready) std::this_thread::yield();
    watch.reset();
    ended.set_value();
  };
  watch = client.watch({.from_seq = 0}, callbacks);
  ready = true;
  auto sink = last_sink(controller, 1);
  sink->send({event(0), event(1)});
  ended.get_future().get();
  CHECK(eventually([&] { return sink->closed(); }));
}

TEST_CASE("many threads may use one client") {
  TempDir dir;
  TestController controller;
  AdminClient client({.address = controller.listen_unix(dir)});
  std::atomic<int> right = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        auto answer = client.query("echo", {{"n", t * 1000 + i}});
        if (answer && (*answer)["n"] == t * 1000 + i) ++right;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(right == 400);
}
