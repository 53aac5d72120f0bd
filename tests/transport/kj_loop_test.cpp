#include "transport/kj_loop.h"

#include <atomic>
#include <thread>
#include <vector>

#include "tests/catch.h"
#include "transport/address.h"

using namespace regrow;

TEST_CASE("posts from many threads all run, each thread's in order") {
  constexpr int kThreads = 8;
  constexpr int kPosts = 20000;
  std::vector<int> next(kThreads, 0);
  int out_of_order = 0;
  {
    KjLoop loop("test");
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < kPosts; ++i) {
          loop.post([&, t, i] {
            if (next[t]++ != i) ++out_of_order;
          });
        }
      });
    }
    for (auto& thread : threads) thread.join();
    loop.run_sync([] {});
    for (int t = 0; t < kThreads; ++t) CHECK(next[t] == kPosts);
    CHECK(out_of_order == 0);
  }
}

TEST_CASE("the loop may be stopped while threads post; what was not run is dropped") {
  for (int round = 0; round < 20; ++round) {
    auto loop = std::make_unique<KjLoop>("test");
    std::atomic<bool> stop = false;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        while (!stop) loop->post([held = std::make_shared<int>(1)] { (void)held; });
      });
    }
    loop->run_sync([] {});
    loop->stop();
    CHECK_FALSE(loop->post([] {}));
    CHECK_THROWS_WITH(loop->run_sync([] {}), "the event loop has been stopped");
    stop = true;
    for (auto& thread : threads) thread.join();
  }
}

TEST_CASE("what a task throws goes to the error callback and the loop lives on") {
  std::vector<std::string> errors;
  std::mutex mutex;
  KjLoop loop("test", [&](const std::string& e) {
    std::lock_guard lock(mutex);
    errors.push_back(e);
  });
  loop.post([] { throw std::runtime_error("first"); });
  loop.post([&] {
    loop.detach(kj::Promise<void>(
        kj::Exception(kj::Exception::Type::FAILED, __FILE__, __LINE__, kj::str("second"))));
  });
  loop.post([&] {
    loop.detach(kj::Promise<void>(
        kj::Exception(kj::Exception::Type::DISCONNECTED, __FILE__, __LINE__, kj::str("normal"))));
  });
  CHECK(loop.run_sync([] { return 7; }) == 7);
  for (int i = 0; i < 5; ++i) loop.run_sync([] {});
  std::lock_guard lock(mutex);
  REQUIRE(errors.size() == 2);
  CHECK(errors[0].find("first") != std::string::npos);
  CHECK(errors[1].find("second") != std::string::npos);
}

TEST_CASE("run_sync returns values and exceptions, and refuses the loop's own thread") {
  KjLoop loop("test");
  CHECK(loop.run_sync([&] { return loop.on_loop_thread(); }));
  CHECK_FALSE(loop.on_loop_thread());
  CHECK_THROWS_WITH(loop.run_sync([]() -> int { throw std::runtime_error("mine"); }), "mine");
  CHECK_THROWS_AS(loop.run_sync([&] { loop.run_sync([] {}); }), std::logic_error);
}

TEST_CASE("stopping cancels detached promises") {
  auto flag = std::make_shared<int>(0);
  std::weak_ptr<int> weak = flag;
  KjLoop loop("test");
  loop.run_sync([&] {
    loop.detach(loop.timer().afterDelay(1000 * kj::SECONDS).attach(kj::defer([held = flag] {
      (void)held;
    })));
  });
  flag.reset();
  CHECK_FALSE(weak.expired());
  loop.stop();
  CHECK(weak.expired());
}

TEST_CASE("addresses are read in every form and written back") {
  auto read = [](const char* text) {
    auto address = parse_address(text);
    return address ? to_string(*address) : "error: " + address.error().message;
  };
  CHECK(read("unix:/run/x.sock") == "unix:/run/x.sock");
  CHECK(read("/run/x.sock") == "unix:/run/x.sock");
  CHECK(read("tcp:h1:7070") == "tcp:h1:7070");
  CHECK(read("10.0.0.1:0") == "tcp:10.0.0.1:0");
  CHECK(read("[::1]:7070") == "tcp:[::1]:7070");
  CHECK(read("*:7070") == "tcp:*:7070");
  for (const char* bad :
       {"", "unix:", "unix:rel", "h1", "h1:", "h1:x", "h1:70000", ":7070", "::1:7070", "tcp:"}) {
    INFO(bad);
    CHECK(read(bad).starts_with("error: address"));
  }
  CHECK(read(("/" + std::string(120, 'a')).c_str()).find("choose a shorter directory") !=
        std::string::npos);
}
