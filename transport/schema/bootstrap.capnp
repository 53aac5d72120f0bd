# What every connection to a controller starts with: one socket serves agents and admins.
@0xb8f0a9d6f2e0c3d5;

using Cxx = import "/capnp/c++.capnp";
using P = import "/transport/schema/protocol.capnp";
using Link = import "/transport/schema/host_link.capnp";
using A = import "/transport/schema/admin.capnp";
$Cxx.namespace("regrow::rpc");

interface Controller {
  # An agent says who it is and hands over its own capability. A refusal is an answer, not an
  # exception.
  attach @0 (hello :P.AgentHello, agent :Link.Agent) -> Link.AttachResult;

  admin @1 () -> (admin :A.Admin);
}
