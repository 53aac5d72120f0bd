// The effect runner: which session a host has, and that nothing goes there before its inventory was
// answered.
#include "tests/actors/world.h"
#include "tests/catch.h"

namespace regrow::actor_tests {
namespace {

struct Runner : World {
  const HostName h1{"h1"};
  Runner() { has_journal = false; }

  void perform(Effect effect) {
    caf::anon_send(effects_actor, msg::Perform{std::make_shared<const Effect>(std::move(effect))});
    run();
  }
  template <class M>
  void say(M message) {
    caf::anon_send(effects_actor, std::move(message));
    run();
  }
  fx::Stop stop(uint32_t rank) {
    StopCommand command;
    command.key = {{1}, {rank}, {1}};
    return {h1, command};
  }
  fx::Prepare prepare(uint32_t attempt) {
    PrepareCommand command;
    command.job = {1};
    command.attempt = attempt;
    return {h1, command};
  }
  std::string sent_kinds() const {
    std::string text;
    for (const Sent& s : sent) {
      text += std::to_string(s.session.value) + ":";
      text += std::visit(
          [](const auto& c) -> std::string {
            if constexpr (std::is_same_v<std::decay_t<decltype(c)>, std::monostate>)
              return "nothing";
            else
              return c.kTypeName;
          },
          s.command);
      text += " ";
    }
    return text;
  }
};

}  // namespace

TEST_CASE("nothing is sent to a host that is not connected") {
  Runner runner;
  runner.perform(runner.stop(0));
  runner.say(msg::SessionUp{runner.h1, {1}});
  runner.perform(fx::AnswerInventory{runner.h1, {1}, {}, {}});
  CHECK(runner.sent_kinds() == "1:InventoryAnswer ");
  runner.say(msg::SessionDown{runner.h1, {1}});
  runner.perform(runner.stop(0));
  CHECK(runner.sent_kinds() == "1:InventoryAnswer ");
}

TEST_CASE("commands wait until the inventory was answered, and follow it") {
  Runner runner;
  runner.say(msg::SessionUp{runner.h1, {1}});
  runner.perform(runner.stop(0));
  runner.perform(runner.stop(1));
  CHECK(runner.sent.empty());
  runner.perform(fx::AnswerInventory{runner.h1, {1}, {}, {}});
  CHECK(runner.sent_kinds() == "1:InventoryAnswer 1:StopCommand 1:StopCommand ");
  runner.perform(runner.stop(2));
  CHECK(runner.sent.size() == 4);
}

TEST_CASE("an answer to an older connection's inventory is not given to a newer one") {
  Runner runner;
  runner.say(msg::SessionUp{runner.h1, {1}});
  runner.say(msg::SessionUp{runner.h1, {2}});
  runner.say(msg::SessionDown{runner.h1, {1}});  // may come late
  runner.perform(fx::AnswerInventory{runner.h1, {1}, {}, {}});
  CHECK(runner.sent.empty());
  runner.perform(fx::AnswerInventory{runner.h1, {2}, {}, {}});
  CHECK(runner.sent_kinds() == "2:InventoryAnswer ");
}

TEST_CASE("a host that returns is asked to prepare once more, with the newest order only") {
  Runner runner;
  runner.perform(runner.prepare(1));
  runner.perform(runner.prepare(2));
  runner.say(msg::SessionUp{runner.h1, {1}});
  runner.perform(runner.prepare(3));
  runner.perform(fx::AnswerInventory{runner.h1, {1}, {}, {}});
  auto prepares = runner.sent_commands<PrepareCommand>();
  REQUIRE(prepares.size() == 1);
  CHECK(prepares[0].attempt == 3);

  runner.say(msg::ForgetJob{{1}});
  runner.say(msg::SessionUp{runner.h1, {2}});
  runner.perform(fx::AnswerInventory{runner.h1, {2}, {}, {}});
  CHECK(runner.sent_commands<PrepareCommand>().size() == 1);
}

TEST_CASE("a start waits for its job's spec") {
  Runner runner;
  runner.say(msg::SessionUp{runner.h1, {1}});
  runner.perform(fx::AnswerInventory{runner.h1, {1}, {}, {}});
  SpawnCommand command;
  command.key = {{1}, {0}, {1}};
  runner.perform(fx::Spawn{runner.h1, command});
  CHECK(runner.sent_commands<Spawn>().empty());
  runner.perform(fx::KeepSpec{{1}, spec_of(4)});
  REQUIRE(runner.sent_commands<Spawn>().size() == 1);
  CHECK(runner.sent_commands<Spawn>()[0].spec == spec_of(4));
}

TEST_CASE(
    "an exception in the effect runner ends the process instead of leaving it without hands") {
  struct Broken final : CommandSink {
    void send(SessionId, std::vector<AgentCommand>) override {
      throw std::runtime_error("link lost its mind");
    }
    void drop(SessionId, std::string) override {}
  } broken;
  Runner runner;
  caf::actor effects =
      runner.system().spawn(effect_runner, &runner.context, static_cast<CommandSink*>(&broken));
  caf::anon_send(effects, msg::SessionUp{runner.h1, {1}});
  caf::anon_send(
      effects,
      msg::Perform{std::make_shared<const Effect>(fx::AnswerInventory{runner.h1, {1}, {}, {}})});
  runner.run();
  REQUIRE(runner.fatal.size() == 1);
  CHECK(runner.fatal[0].find("effects") != std::string::npos);
  CHECK(runner.fatal[0].find("link lost its mind") != std::string::npos);
}

}  // namespace regrow::actor_tests
