# The admin service: what CLI, shell and web page ask the controller. See transport/admin.h.
# Errors travel as exceptions "regrow:<exit code>:<message for a person>".
@0xe3b34c1f7be14a89;

using Cxx = import "/capnp/c++.capnp";
using P = import "/transport/schema/protocol.capnp";
$Cxx.namespace("regrow::rpc");

interface Subscriber {
  # JSON, one event per line, in order; {"heartbeat":...} lines at least every two seconds.
  lines @0 (batch :List(Text)) -> stream;

  # The controller ends the watch: the reader is too slow, or the controller stops. Watch again from
  # the next sequence.
  end @1 (reason :Text) -> ();
}

# Dropping it ends the watch.
interface WatchHandle {}

interface Admin {
  hello @0 (clientVersion :Text)
      -> (who :Text, role :Text, clusterId :Text, version :Text, epoch :UInt64);

  # Reading. `what` names the question, e.g. "jobs".
  query @1 (what :Text, argsJson :Text) -> (json :Text);

  # Changing; for operators. Who asked and why is journaled.
  act @2 (what :Text, argsJson :Text, reason :Text) -> (json :Text);

  # Events from sequence fromSeq on, of one entity and those below it (empty = all).
  # firstSeq: where the stream really starts.
  watch @3 (fromSeq :UInt64, entity :Text, sub :Subscriber)
      -> (handle :WatchHandle, firstSeq :UInt64);

  readLog @4 (query :P.LogQuery) -> (chunk :P.LogChunk);

  # Answers at once: tells "busy with my question" from "does not answer".
  ping @5 () -> ();
}
