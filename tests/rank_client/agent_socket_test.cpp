// The agent's end with the library's, and with whoever else knocks.
#include <kj/async-io.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <random>
#include <sstream>

#include "actors/agent/rank_socket.h"
#include "tests/catch.h"
#include "tests/rank_client/support.h"

namespace regrow::testing {
namespace {

struct World {
  TemporaryDirectory directory;
  kj::AsyncIoContext io = kj::setupAsyncIo();
  RankSocketSettings settings;
  std::unique_ptr<RankSocket> socket;
  std::ostringstream log;
  std::shared_ptr<spdlog::logger> logger_before = spdlog::default_logger();

  explicit World(const std::string& below = "") {
    settings.directory = directory.path() + below;
    std::filesystem::create_directories(settings.directory);
    settings.name = "rank/7/0 incarnation 1";
    settings.token = kToken;
    settings.uid = geteuid();
    settings.gid = getegid();
    settings.generation = 5;
    auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(log);
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", sink));
    start();
  }
  ~World() {
    socket = nullptr;
    spdlog::set_default_logger(logger_before);
  }
  void start() {
    socket = nullptr;
    socket = std::make_unique<RankSocket>(io.unixEventPort, io.provider->getTimer(), settings);
  }
  std::string path() const { return RankSocket::path_in(settings.directory); }
  bool wait_until(const std::function<bool()>& done) {
    auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!done()) {
      if (std::chrono::steady_clock::now() > end) return false;
      io.provider->getTimer().afterDelay(2 * kj::MILLISECONDS).wait(io.waitScope);
    }
    return true;
  }
  // The newest step that comes.
  std::optional<StepReport> wait_step(int64_t step) {
    std::optional<StepReport> newest;
    wait_until([&] {
      if (auto next = socket->take_step()) newest = next;
      return newest && newest->step == step;
    });
    return newest;
  }
  size_t lines_that_say(const std::string& text) const {
    std::istringstream lines(log.str());
    std::string line;
    size_t count = 0;
    while (std::getline(lines, line)) count += line.find(text) != std::string::npos;
    return count;
  }
  // A connection of nobody in particular.
  Fd connect() {
    Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    path().copy(address.sun_path, sizeof address.sun_path - 1);
    REQUIRE(::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    return fd;
  }
};

TEST_CASE("a step arrives with its loss and time, and is taken once") {
  World world;
  Environment environment(supervised(world.path()));
  Client client;
  client.step(7, 0.25);
  auto step = world.wait_step(7);
  REQUIRE(step);
  CHECK(step->loss == 0.25);
  CHECK(std::abs(step->time_us - wall_clock_us()) < 60'000'000);
  CHECK_FALSE(world.socket->take_step());
  CHECK(client.generation() == 5);
  CHECK_FALSE(world.socket->finish_said());
}

TEST_CASE("a wrong token is refused, told and logged once") {
  World world;
  Environment environment(
      {{"REGROW_SOCKET", world.path()}, {"REGROW_TOKEN", "0123456789abcdef0123456789abcdeX"}});
  for (int i = 0; i < 3; ++i) {
    Client client;
    client.step(7, 0.25);
    CHECK(world.wait_until([&] {
      client.step(8, 0.25);
      regrow_info info = REGROW_INFO_INIT;
      return client.init(&info) == 0;
    }));
  }
  CHECK_FALSE(world.socket->take_step());
  CHECK(world.lines_that_say("refuses reports") == 1);
  CHECK(world.lines_that_say("its token is not this incarnation's") == 1);
  CHECK(world.wait_until([&] { return world.socket->connections() == 0; }));

  // Its own rank is as welcome as before.
  Environment right(supervised(world.path()));
  Client client;
  client.step(9, 0);
  CHECK(world.wait_step(9));
}

TEST_CASE("another user's process is refused, whatever it says") {
  World world;
  world.settings.uid = geteuid() + 1;
  world.start();
  if (geteuid() == 0) {
    struct stat info = {};
    REQUIRE(stat(world.path().c_str(), &info) == 0);
    CHECK(info.st_uid == 1);
    CHECK((info.st_mode & 0777) == 0600);
    Environment environment(supervised(world.path()));
    Client client;
    client.step(7, 0.25);
    CHECK(world.wait_until([&] { return world.lines_that_say("it is of uid 0") == 1; }));
    CHECK_FALSE(world.socket->take_step());
  } else {
    CHECK(world.lines_that_say("cannot report its steps") == 1);
  }
}

TEST_CASE("rubbish ends a connection before the hello and is passed over after it") {
  World world;
  std::mt19937 random(3);
  for (int round = 0; round < 200; ++round) {
    Fd fd = world.connect();
    std::string bytes(1 + random() % 2000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (round % 2 == 0) {
      FrameWriter hello(Kind::hello);
      hello.text(kToken.data(), kToken.size());
      REQUIRE(send_frame(fd, hello));
    }
    send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    FrameWriter later(static_cast<Kind>(40)), short_step(Kind::step), step(Kind::step);
    send_frame(fd, later.number(3));
    send_frame(fd, short_step.number(5));
    send_frame(fd, step.number(round).real(0).number(0));
    if (round % 2 == 0) {
      REQUIRE(world.wait_step(round));
    } else {
      CHECK(world.wait_until([&] {
        auto answer = receive(fd);
        return answer && answer->kind() == Kind::refused;
      }));
    }
  }
  CHECK_FALSE(world.socket->take_step());
  CHECK(world.lines_that_say("refuses reports") == 1);
  CHECK(world.wait_until([&] { return world.socket->connections() == 0; }));
}

TEST_CASE("the next agent takes the rank back, and knows its newest step at once") {
  World world;
  Environment environment(supervised(world.path()));
  Client client;
  client.step(7, 0.5);
  REQUIRE(world.wait_step(7));
  world.start();
  auto known = world.socket->take_step();
  REQUIRE(known);
  CHECK(known->step == 7);
  CHECK(known->loss == 0.5);
  client.step(8, NAN);
  CHECK(world.wait_until([&] {
    client.generation();
    auto step = world.socket->take_step();
    return step && step->step == 8 && std::isnan(step->loss);
  }));
  // A killed one leaves its socket behind.
  world.socket = nullptr;
  Listener left(world.path());
  world.start();
  client.step(9, 0);
  CHECK(world.wait_until([&] {
    client.generation();
    auto step = world.socket->take_step();
    return step && step->step == 9;
  }));
}

TEST_CASE("a directory too long for a socket address is no hindrance") {
  World world("/" + std::string(120, 'd') + "/" + std::string(120, 'e'));
  Environment environment(supervised(world.path()));
  Client client;
  client.step(7, 0.25);
  CHECK(world.wait_step(7));
}

TEST_CASE("what a rank said just before its end is found, even if nobody had looked yet") {
  World world;
  Environment environment(supervised(world.path()));
  {
    Client client;
    for (int64_t step = 0; step <= 100; ++step) client.step(step, 0.5);
  }
  world.socket->drain();
  auto step = world.socket->take_step();
  REQUIRE(step);
  CHECK(step->step == 100);
}

TEST_CASE("a flood of steps is read, and the newest wins") {
  World world;
  Environment environment(supervised(world.path()));
  Client client;
  int64_t step = 0;
  CHECK(world.wait_until([&] {
    for (int i = 0; i < 1000; ++i) client.step(step++, 0);
    return step >= 50'000;
  }));
  CHECK(world.wait_until([&] {
    client.generation();
    auto newest = world.socket->take_step();
    return newest && newest->step == step - 1;
  }));
}

TEST_CASE("finish is taken and logged once; time that has not come yet is now") {
  World world;
  Environment environment(supervised(world.path()));
  Fd fd = world.connect();
  FrameWriter hello(Kind::hello), step(Kind::step), finish(Kind::finish);
  send_frame(fd, hello.text(kToken.data(), kToken.size()));
  send_frame(fd, step.number(3).real(0).number(INT64_MAX));
  send_frame(fd, finish.number(3));
  send_frame(fd, finish);
  CHECK(world.wait_until([&] { return world.socket->finish_said(); }));
  CHECK(world.socket->take_step()->time_us <= wall_clock_us());
  CHECK(world.lines_that_say("about to finish, at step 3") == 1);
  std::vector<Kind> answers;
  for (const Packet& packet : receive_all(fd)) answers.push_back(packet.kind());
  CHECK(answers == std::vector<Kind>{Kind::welcome, Kind::finished, Kind::finished});
}

TEST_CASE("tokens are long and never the same") {
  std::string token = RankSocket::make_token();
  CHECK(token.size() == rank_protocol::kTokenBytes);
  CHECK(token.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(token != RankSocket::make_token());
}

}  // namespace
}  // namespace regrow::testing
