#include "tests/agent/support.h"

#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "actors/agent/leftovers.h"
#include "tests/catch.h"

namespace regrow::testing {

namespace fs = std::filesystem;

TemporaryDirectory::TemporaryDirectory() : path_("/tmp/regrow-test-XXXXXX") {
  if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
}

TemporaryDirectory::~TemporaryDirectory() {
  // Again if a shim that is just ending removes something at the same time.
  std::error_code error;
  for (int i = 0; i < 50 && fs::exists(path_); ++i) {
    fs::remove_all(path_, error);
    if (error) usleep(10'000);
  }
}

std::string shim_path() {
  std::vector<std::string> places;
  if (const char* bin = getenv("REGROW_BIN_DIR"))
    places.push_back(std::string(bin) + "/regrow-shim");
  fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
  places.push_back(here / "regrow-shim");
  places.push_back(here.parent_path() / "bin" / "regrow-shim");
  for (const std::string& place : places) {
    if (fs::exists(place)) return place;
  }
  throw std::runtime_error("regrow-shim is not built");
}

void write_file(const std::string& path, const std::string& bytes) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

bool alive(uint64_t pid) {
  char state = read_process_stat(pid).state;
  return state != 0 && state != 'Z' && state != 'X';
}

size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

World::World() {
  options.host = {"h1"};
  options.uid = directory.path().substr(directory.path().rfind('/') + 1);
  options.boot_id = "boot-1";
  options.run_directory = directory.path() + "/run";
  options.state_directory = directory.path();
  options.shim = shim_path();
  options.temporary_root = directory.path();
  options.allowed_users.uids = {geteuid()};
  spec.name = "test";
  spec.uid = geteuid();
  spec.working_directory = directory.path();
  start_runner();
}

World::~World() {
  if (!runner) start_runner();
  for (const RankReport& report : runner->inventory()) {
    StopCommand stop;
    stop.key = report.key;
    stop.force = true;
    runner->stop(stop);
  }
  wait_until([this] {
    for (const RankReport& report : runner->inventory()) {
      if (report.state == ProcessState::running || report.state == ProcessState::starting)
        return false;
    }
    return true;
  });
  pass(0.02);
}

void World::start_runner() {
  runner = std::make_unique<RankRunner>(io.unixEventPort, io.provider->getTimer(), options,
                                        [this](const RankReport& r) { reports.push_back(r); });
}

void World::restart_runner() {
  drop_runner();
  start_runner();
}

bool World::wait_until(const std::function<bool()>& done, double seconds) {
  auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    pass(0.002);
  }
  return true;
}

void World::pass(double seconds) {
  io.provider->getTimer().afterDelay(int64_t(seconds * 1e6) * kj::MICROSECONDS).wait(io.waitScope);
}

RankReport World::wait_final(const IncarnationKey& key, double seconds) {
  bool ended = wait_until(
      [&] {
        ProcessState state = runner->query(key).state;
        return state != ProcessState::running && state != ProcessState::starting;
      },
      seconds);
  if (!ended) FAIL("rank did not end within " << seconds << " s");
  return runner->query(key);
}

RankReport World::wait_running(const IncarnationKey& key) {
  wait_until([&] { return runner->query(key).state != ProcessState::starting; });
  RankReport report = runner->query(key);
  INFO(report.message);
  REQUIRE(report.state == ProcessState::running);
  return report;
}

PrepareReport World::prepare(PrepareCommand command) {
  if (command.uid == 0) command.uid = geteuid();
  return runner->prepare(std::move(command)).wait(io.waitScope);
}

SpawnCommand World::command(uint32_t rank, uint32_t incarnation, uint64_t job) const {
  SpawnCommand command;
  command.key = {{job}, {rank}, {incarnation}};
  command.generation = {1};
  command.master_address = "127.0.0.1";
  command.master_port = 20001;
  return command;
}

IncarnationKey World::spawn_shell(const std::string& script, uint32_t rank, uint32_t incarnation) {
  spec.command = {"/bin/sh", "-c", script};
  SpawnCommand made = command(rank, incarnation);
  runner->spawn(made, spec);
  return made.key;
}

IncarnationKey World::spawn_python(const std::string& script, uint32_t rank, uint32_t incarnation) {
  spec.command = {"/usr/bin/python3", "-c", script};
  SpawnCommand made = command(rank, incarnation);
  runner->spawn(made, spec);
  return made.key;
}

void World::stop(const IncarnationKey& key, double grace_seconds, bool force) {
  StopCommand command;
  command.key = key;
  command.grace = {int64_t(grace_seconds * 1e6)};
  command.force = force;
  runner->stop(command);
}

std::string World::directory_of(const IncarnationKey& key) const {
  return options.run_directory + "/ranks/" + incarnation_path(key);
}

std::string World::log(const IncarnationKey& key, const std::string& stream) const {
  LogQuery query;
  query.job = key.job;
  query.rank = key.rank;
  query.incarnation = key.incarnation;
  query.stream = stream;
  query.max_bytes = 1u << 20;
  return runner->read_log(query).data;
}

}  // namespace regrow::testing
