#include "supervisors/types.h"

#include "supervisors/state.h"
#include "tests/catch.h"

using namespace regrow;

namespace {

struct Inner {
  int32_t a = 1;
  std::string b;
  REGROW_FIELDS(Inner, a, b)
};
struct Outer {
  Inner inner;
  std::vector<Inner> many;
  JobId id;
  REGROW_FIELDS(Outer, inner, many, id)
};
struct Empty {
  REGROW_FIELDS(Empty)
};
REGROW_ENUM(Colour, red, green, blue)

}  // namespace

TEST_CASE("fields are visited in the order of declaration, and compared", "[reflect]") {
  Outer a, b;
  std::string names;
  Outer::visit_fields(a, [&](const char* name, auto&) { names += std::string(name) + " "; });
  CHECK(names == "inner many id ");
  CHECK(a == b);
  b.many.push_back({2, "x"});
  CHECK_FALSE(a == b);
  int visited = 0;
  Empty empty;
  Empty::visit_fields(empty, [&](const char*, auto&) { ++visited; });
  CHECK(visited == 0);
  CHECK(std::string(Outer::kTypeName) == "Outer");
}

TEST_CASE("a visitor may change fields", "[reflect]") {
  Inner inner;
  Inner::visit_fields(inner, [](const char*, auto& field) {
    if constexpr (std::is_integral_v<std::remove_reference_t<decltype(field)>>) field = 9;
  });
  CHECK(inner.a == 9);
}

TEST_CASE("enums have names both ways", "[reflect]") {
  CHECK(to_string(Colour::green) == "green");
  CHECK(to_string(static_cast<Colour>(7)) == "?");
  Colour c = Colour::red;
  CHECK(from_string("blue", c));
  CHECK(c == Colour::blue);
  CHECK_FALSE(from_string("mauve", c));
  CHECK(c == Colour::blue);
}

TEST_CASE("the largest structs fit into the field macro", "[reflect]") {
  int fields = 0;
  JobState state;
  JobState::visit_fields(state, [&](const char*, auto&) { ++fields; });
  CHECK(fields > 40);
}

TEST_CASE("entity ids", "[types]") {
  struct Row {
    const char* text;
    bool valid;
    EntityKind kind;
    const char* parent;
  };
  for (const Row& row : std::vector<Row>{{"cluster", true, EntityKind::cluster, ""},
                                         {"host/h1", true, EntityKind::host, "cluster"},
                                         {"device/h1/gpu0", true, EntityKind::device, "host/h1"},
                                         {"job/7", true, EntityKind::job, "cluster"},
                                         {"group/7/0", true, EntityKind::group, "job/7"},
                                         {"rank/7/3", true, EntityKind::rank, "job/7"},
                                         {"job/x", false, EntityKind::job, ""},
                                         {"job/", false, EntityKind::job, ""},
                                         {"job/1/2", false, EntityKind::job, ""},
                                         {"rank/7", false, EntityKind::rank, ""},
                                         {"rank/7/x", false, EntityKind::rank, ""},
                                         {"host", false, EntityKind::host, ""},
                                         {"host//x", false, EntityKind::host, ""},
                                         {"", false, EntityKind::unknown, ""},
                                         {"planet/1", false, EntityKind::unknown, ""}}) {
    INFO(row.text);
    auto id = parse_entity_id(row.text);
    CHECK(id.has_value() == row.valid);
    CHECK(EntityId{row.text}.kind() == row.kind);
    if (!id) continue;
    CHECK(id->path == row.text);
    auto parent = id->parent();
    CHECK((parent ? parent->path : "") == row.parent);
  }
  CHECK(EntityId::rank({7}, {3}).job_id() == JobId{7});
  CHECK_FALSE(EntityId::host({"h1"}).job_id().has_value());
  CHECK(EntityId::device({"h1"}, {"gpu0"}).part(2) == "gpu0");
  CHECK(EntityId::cluster().part(1) == "");
}

TEST_CASE("deadlines count from the later of event and floor", "[types]") {
  Now now{Time{50}, Time{40}};
  CHECK(now.deadline(Time{10}, Duration{5}).us == 45);
  CHECK(now.deadline(Time{45}, Duration{5}).us == 50);
}

TEST_CASE("counts in words", "[types]") {
  CHECK(count_text(1, "rank") == "1 rank");
  CHECK(count_text(0, "rank") == "0 ranks");
}
