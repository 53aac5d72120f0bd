#include "journal/codec.h"
#include "journal/projection.h"
#include "journal/reflect_json.h"
#include "journal/view.h"
#include "tests/fuzz/targets.h"

namespace regrow::fuzz {

void record(std::string_view bytes) {
  (void)stored_chain(bytes);
  (void)decode_record(bytes, 0).ok();
  auto stored = decode_record(bytes);
  if (!stored) {
    must(!stored.error().message.empty(), "a refusal says why");
    return;
  }
  (void)dump_json(event_to_json(stored->record));
  Projection projection;
  projection.apply(stored->record);

  RecordEncoder encoder;
  std::string first, second;
  uint64_t chain = encoder.encode(stored->record, stored->mono_us, 7, first);
  auto again = decode_record(first, 7);
  must(again.ok(), "what was decoded can be written and read again");
  must(again->chain == chain && again->mono_us == stored->mono_us, "chain and clock come back");
  encoder.encode(again->record, again->mono_us, 7, second);
  must(first == second, "the same record, the same bytes");
}

}  // namespace regrow::fuzz
