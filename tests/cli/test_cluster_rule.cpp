// Which cluster a command talks to: flag, environment, file, the user's own socket.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/catch.h"
#include "tools/regrow/cluster_rule.h"

using namespace regrow;
using namespace regrow::cli;
namespace fs = std::filesystem;

namespace {

class Scratch {
 public:
  Scratch() {
    std::string pattern = (fs::temp_directory_path() / "regrow-rule-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Scratch() { fs::remove_all(path_); }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(*this / name).parent_path());
    std::ofstream(*this / name) << text;
    return *this / name;
  }
  std::string directory(const std::string& name) const {
    fs::create_directories(*this / name);
    return *this / name;
  }

 private:
  std::string path_;
};

ClusterHints hints_in(const Scratch& scratch) {
  ClusterHints hints;
  hints.file = scratch / "config/regrow/cluster";
  hints.runtime_directory = scratch.directory("run");
  hints.uid = geteuid();
  return hints;
}

}  // namespace

TEST_CASE("flag wins over environment, environment over file, file over the default socket") {
  Scratch scratch;
  ClusterHints hints = hints_in(scratch);
  auto choice = choose_cluster(hints);
  REQUIRE(choice.ok());
  CHECK(choice->address.path == scratch / "run/regrow/regrow.sock");
  CHECK(choice->source == "default");

  scratch.write("config/regrow/cluster", "# ours\n\nunix:/srv/a.sock\n");
  choice = choose_cluster(hints);
  REQUIRE(choice.ok());
  CHECK(choice->address.path == "/srv/a.sock");
  CHECK(choice->source == hints.file);

  hints.environment = "/srv/b.sock";
  choice = choose_cluster(hints);
  REQUIRE(choice.ok());
  CHECK(choice->address.path == "/srv/b.sock");
  CHECK(choice->source == "REGROW_CLUSTER");

  hints.flag = "unix:/srv/c.sock";
  choice = choose_cluster(hints);
  REQUIRE(choice.ok());
  CHECK(choice->address.path == "/srv/c.sock");
}

TEST_CASE("a state directory stands for the socket in it") {
  Scratch scratch;
  std::string state = scratch.directory("state");
  auto address = address_of_value(state);
  REQUIRE(address.ok());
  CHECK(address->path == state + "/regrow.sock");
  CHECK(address_of_value(state + "/../state/")->path == state + "/regrow.sock");
}

TEST_CASE("a state directory with a long path names its socket in a file") {
  Scratch scratch;
  std::string state = scratch.directory(std::string(60, 'a') + "/" + std::string(60, 'b'));
  ClusterHints hints = hints_in(scratch);
  std::string socket = socket_of_state_directory(state, hints);
  CHECK(socket.size() < 108);
  CHECK(socket.starts_with(scratch / "run/regrow/"));
  CHECK(socket == socket_of_state_directory(state + "/", hints));
  CHECK(socket != socket_of_state_directory(state + "c", hints));
  std::ofstream(state + "/cluster") << "unix:" << socket << "\n";
  CHECK(address_of_value(state)->path == socket);
}

TEST_CASE("without a runtime directory the default lies in /tmp") {
  ClusterHints hints;
  hints.uid = 4711;
  CHECK(user_directory(hints) == "/tmp/regrow-4711");
  hints.runtime_directory = "/does/not/exist";
  CHECK(user_directory(hints) == "/tmp/regrow-4711");
}

TEST_CASE("a user directory that others could have made is not trusted") {
  Scratch scratch;
  std::string directory = scratch / "regrow-1";
  REQUIRE(make_user_directory(directory, geteuid()).ok());
  struct stat info {};
  REQUIRE(stat(directory.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
  CHECK(check_user_directory(directory, geteuid()).ok());
  CHECK(!check_user_directory(directory, geteuid() + 1).ok());
  chmod(directory.c_str(), 0777);
  CHECK(!make_user_directory(directory, geteuid()).ok());
  REQUIRE(symlink(directory.c_str(), (scratch / "link").c_str()) == 0);
  CHECK(!make_user_directory(scratch / "link", geteuid()).ok());
}

TEST_CASE("an address that cannot be is an error that names its source") {
  Scratch scratch;
  ClusterHints hints = hints_in(scratch);
  hints.environment = "nonsense";
  auto choice = choose_cluster(hints);
  REQUIRE(!choice.ok());
  CHECK(choice.error().exit_code == kExitUsage);
  CHECK(choice.error().message.starts_with("REGROW_CLUSTER: "));
}

TEST_CASE("TCP needs a certificate, and one that is whole") {
  Scratch scratch;
  ClusterHints hints = hints_in(scratch);
  hints.flag = "controller.example:7400";
  auto choice = choose_cluster(hints);
  REQUIRE(!choice.ok());
  CHECK(choice.error().message.find("--certs") != std::string::npos);

  std::string certs = scratch.directory("certs");
  hints.certs_flag = certs;
  choice = choose_cluster(hints);
  REQUIRE(!choice.ok());
  CHECK(choice.error().message.find("holds no certificate") != std::string::npos);

  scratch.write("certs/ca.pem", "");
  scratch.write("certs/ann.pem", "");
  scratch.write("certs/ann.key", "");
  choice = choose_cluster(hints);
  REQUIRE(choice.ok());
  CHECK(choice->tls->certificate == certs + "/ann.pem");
  CHECK(choice->tls->key == certs + "/ann.key");
  CHECK(choice->tls->ca == certs + "/ca.pem");

  scratch.write("certs/bob.pem", "");
  scratch.write("certs/bob.key", "");
  choice = choose_cluster(hints);
  REQUIRE(!choice.ok());
  CHECK(choice.error().message.find("several") != std::string::npos);
  hints.certs_flag = certs + "/bob.pem";
  choice = choose_cluster(hints);
  REQUIRE(choice.ok());
  CHECK(choice->tls->certificate == certs + "/bob.pem");
}

TEST_CASE("the file may name the certificates as well") {
  Scratch scratch;
  ClusterHints hints = hints_in(scratch);
  std::string certs = scratch.directory("certs");
  scratch.write("certs/ca.pem", "");
  scratch.write("certs/ann.pem", "");
  scratch.write("certs/ann.key", "");
  scratch.write("config/regrow/cluster", "tcp:controller.example:7400\ncerts " + certs + "\n");
  auto choice = choose_cluster(hints);
  REQUIRE(choice.ok());
  CHECK(choice->address.port == 7400);
  CHECK(choice->tls->certificate == certs + "/ann.pem");
}
