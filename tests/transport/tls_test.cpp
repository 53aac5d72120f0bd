// Who may connect: mutual TLS, certificates, roles.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/transport/support.h"
#include "transport/admin_client.h"

using namespace regrow;
using namespace regrow::test;

namespace {

TlsFiles issue(const std::string& directory, const std::string& role, const std::string& name = "",
               int days = 30) {
  auto files = certs_issue(directory, {role, name, days});
  if (!files) FAIL(files.error().message);
  return *files;
}

void init(const std::string& directory) {
  auto made = certs_init(directory);
  if (!made) FAIL(made.error().message);
}

mode_t mode_of(const std::string& path) {
  struct stat info {};
  REQUIRE(stat(path.c_str(), &info) == 0);
  return info.st_mode & 0777;
}

}  // namespace

TEST_CASE("a CA is made once, keys are private, nothing is overwritten") {
  TempDir temp;
  auto dir = temp.path() + "/certs";
  auto missing = certs_issue(dir, {"agent", "h1", 30});
  REQUIRE_FALSE(missing);
  CHECK(missing.error().message.find("regrow certs init") != std::string::npos);
  init(dir);
  CHECK(mode_of(dir) == 0700);
  CHECK(mode_of(dir + "/ca.key") == 0600);
  auto again = certs_init(dir);
  REQUIRE_FALSE(again);
  CHECK(again.error().message.find("not overwritten") != std::string::npos);

  auto files = issue(dir, "agent", "h1", 30);
  CHECK(files == TlsFiles::in(dir, "h1"));
  CHECK(mode_of(files.key) == 0600);
  auto expiry = certificate_expiry(files.certificate);
  REQUIRE(expiry);
  CHECK(std::abs(*expiry - (std::time(nullptr) + 30 * 86400)) < 100);
  CHECK_FALSE(certs_issue(dir, {"agent", "h1", 30}));
  CHECK_FALSE(certs_issue(dir, {"king", "h1", 30}));
  const std::vector<std::string> bad_names = {"",     "ca", "controller", "a/b",
                                              "../x", ".x", "a b",        std::string(60, 'x')};
  for (const auto& bad : bad_names) {
    INFO(bad);
    CHECK_FALSE(certs_issue(dir, {"agent", bad, 30}));
  }
  CHECK_FALSE(certs_issue(dir, {"agent", "h2", 0}));
  CHECK_FALSE(std::filesystem::exists(dir + "/h2.key"));
}

TEST_CASE("TCP without certificates is refused at both ends, with the command that makes them") {
  TempDir dir;
  TestController controller;
  auto bound = controller.rpc.listen({.address = *parse_address("127.0.0.1:0")});
  REQUIRE_FALSE(bound);
  CHECK(bound.error().message.find("regrow certs issue") != std::string::npos);

  init(dir.path() + "/c");
  auto address = controller.listen(
      {.address = *parse_address("127.0.0.1:0"), .tls = issue(dir.path() + "/c", "controller")});
  CHECK(address.port != 0);
  AdminClient client({.address = address});
  auto hello = client.connect();
  REQUIRE_FALSE(hello);
  CHECK(hello.error().exit_code == kExitUsage);
  CHECK(hello.error().message.find("regrow certs issue") != std::string::npos);
}

TEST_CASE("who is let in over TLS, and as what") {
  TempDir temp;
  auto good = temp.path() + "/good", evil = temp.path() + "/evil";
  init(good);
  init(evil);
  TestController controller;
  auto address = controller.listen(
      {.address = *parse_address("127.0.0.1:0"), .tls = issue(good, "controller"), .roles = {}});
  auto connect = [&](const Address& to, const TlsFiles& files) -> std::string {
    AdminClient client({.address = to, .tls = files, .version = "test"});
    auto hello = client.connect();
    return hello ? hello->who + " " + hello->role : hello.error().message;
  };
  CHECK(connect(address, issue(good, "operator", "ann")) == "operator/ann operator");
  CHECK(connect(address, issue(good, "viewer", "board")) == "viewer/board viewer");
  CHECK(connect(address, issue(good, "agent", "h1")) == "agent/h1 agent");

  SECTION("another CA, on either side") {
    auto text = connect(address, issue(evil, "operator", "ann"));
    INFO(text);
    CHECK(text.find("certificate is of another CA") != std::string::npos);
    CHECK(text.find("regrow certs issue") != std::string::npos);
    // Trusts the right controller, but shows a certificate of the wrong CA.
    auto mixed = TlsFiles{good + "/ca.pem", evil + "/ann.pem", evil + "/ann.key"};
    text = connect(address, mixed);
    INFO(text);
    CHECK(text.find("regrow certs issue") != std::string::npos);
    CHECK(
        eventually([&] { return controller.errors.with([](auto& e) { return e.size(); }) >= 2; }));
    controller.errors.with(
        [](auto& e) { CHECK(e[0].find("refused a connection from") != std::string::npos); });
  }
  SECTION("an agent's certificate cannot play the controller") {
    TestController fake;
    auto trap = fake.listen(
        {.address = *parse_address("127.0.0.1:0"), .tls = TlsFiles::in(good, "h1"), .roles = {}});
    auto text = connect(trap, TlsFiles::in(good, "ann"));
    INFO(text);
    CHECK(text.find("not for that role") != std::string::npos);
  }
  SECTION("files that do not belong together or are not there") {
    auto text = connect(address, {good + "/ca.pem", good + "/ann.pem", good + "/board.key"});
    INFO(text);
    CHECK(text.find("is not the key of") != std::string::npos);
    text = connect(address, TlsFiles::in(good, "nobody"));
    CHECK(text.find("cannot read " + good + "/nobody.pem") != std::string::npos);
  }
  SECTION("something that does not speak TLS") {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in name{};
    name.sin_family = AF_INET;
    name.sin_port = htons(address.port);
    name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0);
    REQUIRE(write(fd, "GET / HTTP/1.0\r\n\r\n", 18) == 18);
    CHECK(
        eventually([&] { return controller.errors.with([](auto& e) { return e.size(); }) >= 1; }));
    close(fd);
    CHECK(connect(address, TlsFiles::in(good, "ann")) == "operator/ann operator");
  }
}

TEST_CASE("over TLS each role may do its part and no more") {
  TempDir temp;
  init(temp.path());
  TestController controller;
  auto address = controller.listen({.address = *parse_address("127.0.0.1:0"),
                                    .tls = issue(temp.path(), "controller"),
                                    .roles = {}});
  auto client = [&](const char* role, const char* name) {
    return std::make_unique<AdminClient>(AdminClientOptions{
        .address = address, .tls = issue(temp.path(), role, name), .version = "test"});
  };
  auto op = client("operator", "ann");
  auto viewer = client("viewer", "board");
  auto agent = client("agent", "h1");
  CHECK(op->query("echo", {{"a", 1}}));
  CHECK(viewer->query("echo", {{"a", 1}}));
  CHECK_FALSE(agent->query("echo", {{"a", 1}}));
  CHECK(op->act("cancel job 7", {}, "test"));
  auto refused = viewer->act("cancel job 7", {}, "test");
  REQUIRE_FALSE(refused);
  CHECK(refused.error().exit_code == kExitNotAllowed);
  CHECK(refused.error().message ==
        "you are viewer/board with role viewer and may not cancel job 7: that needs role operator. "
        "Ask whoever keeps "
        "the cluster's certificates for one made by `regrow certs issue DIR --role operator --name "
        "NAME`.");
  controller.canned.seen.with([](auto& s) {
    REQUIRE(s.actors.size() == 1);
    CHECK(s.actors[0].who == "operator/ann");
    CHECK(s.acts[0] == "cancel job 7 because test");
  });

  auto attach = [&](const std::string& name, const std::string& host) {
    RecordingAgent recorder;
    recorder.hello.name = {host};
    KjLoop loop("test-agent");
    HostLinkClientOptions options;
    options.address = address;
    options.tls = TlsFiles::in(temp.path(), name);
    HostLinkClient link(loop, recorder, options);
    REQUIRE(eventually([&] {
      return recorder.seen.with([](auto& s) {
        return s.connected.size() + s.refused.size() + s.failed.size();
      }) > 0;
    }));
    return recorder.seen.with([](auto& s) -> std::string {
      return !s.connected.empty() ? "connected" : !s.refused.empty() ? s.refused[0] : s.failed[0];
    });
  };
  CHECK(attach("h1", "h1") == "connected");
  CHECK(attach("h1", "h2").find("good for one host name only") != std::string::npos);
  CHECK(attach("ann", "h1").find("needs role agent") != std::string::npos);
}

TEST_CASE("roles on a Unix socket follow the uid") {
  RoleRules rules{.own_uid = 1000, .operator_uids = {1001, 1003}, .agent_uids = {1002, 1003}};
  auto role = [&](uid_t uid) { return identify_uid(uid, rules).role; };
  CHECK(role(0) == Role::owner);
  CHECK(role(1000) == Role::owner);
  CHECK(role(1001) == Role::operator_role);
  CHECK(role(1002) == Role::agent);
  CHECK(role(1003) == Role::owner);
  CHECK(role(1004) == Role::viewer);
  auto viewer = identify_uid(1004, rules);
  CHECK(viewer.who == "uid:1004");
  CHECK(viewer.may_view());
  CHECK_FALSE(viewer.may_operate());
  CHECK_FALSE(viewer.may_attach("h1"));
  CHECK(refusal(viewer, Role::operator_role, "cordon host h1").find("uid:1004 with role viewer") !=
        std::string::npos);
  CHECK(identify_certificate("agent/h1").may_attach("h1"));
  CHECK_FALSE(identify_certificate("agent/h1").may_attach("h10"));
  for (const char* name : {"controller", "", "agent/", "operator", "root", "operator\n/x"}) {
    INFO(name);
    CHECK(identify_certificate(name).role == Role::none);
  }
}

TEST_CASE(
    "the socket's mode is as asked from the first moment, and a stranger's file is not removed") {
  TempDir dir;
  TestController controller;
  controller.listen({.address = dir.socket("a"), .roles = own_rules()});
  controller.listen({.address = dir.socket("b"), .socket_mode = 0666, .roles = own_rules()});
  CHECK(mode_of(dir.path() + "/a") == 0600);
  CHECK(mode_of(dir.path() + "/b") == 0666);

  TestController second;
  auto taken = second.rpc.listen({.address = dir.socket("a"), .roles = own_rules()});
  REQUIRE_FALSE(taken);
  CHECK(taken.error().message.find("another controller listens") != std::string::npos);

  std::filesystem::create_directory(dir.path() + "/d");
  { std::ofstream(dir.path() + "/file") << "precious"; }
  CHECK_FALSE(second.rpc.listen({.address = dir.socket("file")}));
  CHECK(std::filesystem::exists(dir.path() + "/file"));
  CHECK_FALSE(second.rpc.listen({.address = dir.socket("no/such/dir")}));

  // Left behind by a controller that was killed.
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  snprintf(name.sun_path, sizeof name.sun_path, "%s/stale", dir.path().c_str());
  REQUIRE(bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0);
  close(fd);
  CHECK(second.rpc.listen({.address = dir.socket("stale"), .roles = own_rules()}));
}
