#include "transport/rpc_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <kj/io.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "transport/admin_impl.h"
#include "transport/connection.h"
#include "transport/host_link_impl.h"
#include "transport/kj_loop.h"
#include "transport/schema/bootstrap.capnp.h"

namespace regrow {

namespace {

constexpr int kBacklog = 128;

sockaddr_un socket_name(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::strncpy(name.sun_path, path.c_str(), sizeof name.sun_path - 1);
  return name;
}

// True if a process listens on that socket.
bool somebody_listens(const std::string& path) {
  kj::AutoCloseFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  auto name = socket_name(path);
  if (connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0) return true;
  return errno == EAGAIN || errno == EINPROGRESS;  // its queue is full
}

// A listening descriptor.
Result<kj::AutoCloseFd> bind_unix(const std::string& path, mode_t mode) {
  auto failed = [&](const char* what) {
    return Error{kExitUsage, std::string("cannot ") + what + " the socket " + path + ": " +
                                 std::strerror(errno)};
  };
  if (access(path.c_str(), F_OK) == 0) {
    if (somebody_listens(path)) {
      return Error{kExitUsage, "another controller listens on unix:" + path +
                                   "; stop it first or choose another socket"};
    }
    struct stat info {};
    if (lstat(path.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode)) {
      return Error{kExitUsage, path + " is there and is not a socket; choose another path"};
    }
    unlink(path.c_str());
  }
  kj::AutoCloseFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // Before bind(), which copies the mode: there is no moment at which others could connect.
  fchmod(fd, mode & 0700);
  auto name = socket_name(path);
  if (bind(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) != 0) return failed("make");
  if (chmod(path.c_str(), mode) != 0) return failed("set the mode of");
  if (listen(fd, kBacklog) != 0) return failed("listen on");
  return kj::mv(fd);
}

// A listening descriptor; sets the port that the kernel chose for 0.
Result<kj::AutoCloseFd> bind_tcp(Address& address) {
  auto failed = [&](const char* why) {
    return Error{kExitUsage, "cannot listen on " + to_string(address) + ": " + why};
  };
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  bool any = address.host == "*";
  int code = getaddrinfo(any ? nullptr : address.host.c_str(), std::to_string(address.port).c_str(),
                         &hints, &found);
  if (code != 0) return failed(gai_strerror(code));
  auto release = kj::defer([&] { freeaddrinfo(found); });
  int problem = EADDRNOTAVAIL;
  // For every interface an IPv6 socket serves IPv4 as well; without IPv6 take IPv4.
  for (int family : {AF_INET6, AF_INET}) {
    for (auto* one = found; one != nullptr; one = one->ai_next) {
      if (one->ai_family != family) continue;
      kj::AutoCloseFd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
      int on = 1;
      int off = 0;
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      if (family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, any ? &off : &on, sizeof on);
      if (fd.get() < 0 || bind(fd, one->ai_addr, one->ai_addrlen) != 0 ||
          ::listen(fd, kBacklog) != 0) {
        problem = errno;
        continue;
      }
      sockaddr_storage bound{};
      socklen_t size = sizeof bound;
      getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size);
      // The port is at the same place for both families.
      address.port = ntohs(reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
      return kj::mv(fd);
    }
  }
  return failed(std::strerror(problem));
}

}  // namespace

class RpcServer::Impl : public std::enable_shared_from_this<RpcServer::Impl>,
                        public kj::TaskSet::ErrorHandler {
 public:
  Impl(KjLoop& loop, HostLinkServer* host_link, AdminServer* admin)
      : loop_(loop),
        host_link_(host_link ? host_link->impl() : nullptr),
        admin_(admin ? admin->impl() : nullptr),
        tasks_(std::make_unique<kj::TaskSet>(*this)) {}

  // `fd` listens already.
  Status serve_port(ListenOptions options, kj::AutoCloseFd fd);
  void stop();

 private:
  struct Port;
  class ControllerServer;

  kj::Promise<void> accept_loop(Port& port);
  kj::Promise<void> admit(Port& port, kj::AuthenticatedStream stream);
  kj::Promise<void> serve(kj::Own<kj::AsyncIoStream> stream, PeerIdentity peer);
  void taskFailed(kj::Exception&& e) override {
    if (e.getType() != kj::Exception::Type::DISCONNECTED) loop_.report_error(text_of(e));
  }

  KjLoop& loop_;
  std::shared_ptr<HostLinkServer::Impl> host_link_;
  std::shared_ptr<AdminServer::Impl> admin_;
  std::vector<std::string> sockets_;
  std::unique_ptr<kj::TaskSet> tasks_;
};

struct RpcServer::Impl::Port {
  ListenOptions options;
  std::unique_ptr<TlsCredentials> tls;
  kj::Own<kj::ConnectionReceiver> receiver;
};

// What a connected peer can ask for.
class RpcServer::Impl::ControllerServer final : public rpc::Controller::Server {
 public:
  // Sessions that began on this connection, for when it ends; `close` ends it.
  struct Sessions {
    std::shared_ptr<HostLinkServer::Impl> link;
    std::vector<SessionId> ids;
    kj::Own<kj::PromiseFulfiller<void>> close;
    void end() {
      auto ending = std::move(ids);
      ids.clear();
      for (auto id : ending) link->end_session(id, "the connection to the agent was lost");
    }
  };

  ControllerServer(Impl& server, PeerIdentity peer, std::shared_ptr<Sessions> sessions)
      : host_link_(server.host_link_),
        admin_(server.admin_),
        peer_(std::move(peer)),
        sessions_(std::move(sessions)) {}

  kj::Promise<void> attach(AttachContext context) override {
    if (host_link_ == nullptr) {
      context.getResults().setError("this address takes no agents");
      return kj::READY_NOW;
    }
    auto params = context.getParams();
    auto close = [weak = std::weak_ptr<Sessions>(sessions_)] {
      if (auto sessions = weak.lock()) sessions->close->fulfill();
    };
    auto id = host_link_->attach(peer_, params.getHello(), params.getAgent(), close,
                                 context.getResults());
    if (id.value != 0) sessions_->ids.push_back(id);
    return kj::READY_NOW;
  }

  kj::Promise<void> admin(AdminContext context) override {
    if (admin_ == nullptr) kj::throwFatalException(failure("this address has no admin service"));
    context.getResults().setAdmin(admin_->connect(peer_));
    return kj::READY_NOW;
  }

 private:
  std::shared_ptr<HostLinkServer::Impl> host_link_;
  std::shared_ptr<AdminServer::Impl> admin_;
  PeerIdentity peer_;
  std::shared_ptr<Sessions> sessions_;
};

Status RpcServer::Impl::serve_port(ListenOptions options, kj::AutoCloseFd fd) {
  auto port = kj::heap<Port>();
  port->options = std::move(options);
  if (port->options.address.is_tcp()) {
    auto loaded = TlsCredentials::load(*port->options.tls, loop_.timer());
    if (!loaded) return loaded.error();
    port->tls = std::move(*loaded);
  } else {
    sockets_.push_back(port->options.address.path);
  }
  port->receiver = loop_.io().lowLevelProvider->wrapListenSocketFd(kj::mv(fd));
  auto accepting = accept_loop(*port);
  tasks_->add(accepting.attach(kj::mv(port)));
  return Nothing{};
}

kj::Promise<void> RpcServer::Impl::accept_loop(Port& port) {
  return port.receiver->acceptAuthenticated()
      .then(
          [this, &port](kj::AuthenticatedStream stream) -> kj::Promise<void> {
            // Not chained: a slow handshake must not keep others waiting.
            tasks_->add(admit(port, kj::mv(stream)));
            return kj::READY_NOW;
          },
          [this](kj::Exception&& e) {
            // Out of descriptors, most likely: the port must survive that.
            loop_.report_error("cannot accept a connection: " + text_of(e));
            return loop_.timer().afterDelay(100 * kj::MILLISECONDS);
          })
      .then([this, &port] { return accept_loop(port); });
}

kj::Promise<void> RpcServer::Impl::admit(Port& port, kj::AuthenticatedStream stream) {
  if (!port.tls) {
    PeerIdentity peer{"unknown", "unix", -1, Role::none};
    if (auto* local = dynamic_cast<kj::LocalPeerIdentity*>(stream.peerIdentity.get())) {
      KJ_IF_MAYBE (uid, local->getCredentials().uid) {
        peer = identify_uid(*uid, port.options.roles);
      }
    }
    return serve(kj::mv(stream.stream), std::move(peer));
  }
  set_tcp_options(*stream.stream);
  std::string from = stream.peerIdentity->toString().cStr();
  return port.tls->context()
      .wrapServer(kj::mv(stream))
      .then(
          [this](kj::AuthenticatedStream secure) {
            auto& identity = kj::downcast<kj::TlsPeerIdentity>(*secure.peerIdentity);
            auto peer = identify_certificate(
                identity.hasCertificate() ? identity.getCommonName().cStr() : "");
            return serve(kj::mv(secure.stream), std::move(peer));
          },
          [this, from](kj::Exception&& e) -> kj::Promise<void> {
            loop_.report_error("refused a connection from " + from + ": " +
                               explain_tls_error(text_of(e)));
            return kj::READY_NOW;
          });
}

kj::Promise<void> RpcServer::Impl::serve(kj::Own<kj::AsyncIoStream> stream, PeerIdentity peer) {
  auto close = kj::newPromiseAndFulfiller<void>();
  auto sessions = std::make_shared<ControllerServer::Sessions>();
  sessions->link = host_link_;
  sessions->close = kj::mv(close.fulfiller);
  auto server = kj::heap<ControllerServer>(*this, std::move(peer), sessions);
  auto connection = kj::heap<RpcConnection>(kj::mv(stream), kj::mv(server));
  auto gone = connection->on_disconnect().exclusiveJoin(kj::mv(close.promise));
  // The connection goes first, then its sessions end.
  return gone.attach(kj::defer([sessions, connection = kj::mv(connection)]() mutable {
    connection = nullptr;
    sessions->end();
  }));
}

void RpcServer::Impl::stop() {
  tasks_ = nullptr;
  for (const auto& path : sockets_) unlink(path.c_str());
  sockets_.clear();
}

RpcServer::RpcServer(KjLoop& loop, HostLinkServer* host_link, AdminServer* admin)
    : loop_(loop),
      impl_(loop.run_sync([&] { return std::make_shared<Impl>(loop, host_link, admin); })) {}

RpcServer::~RpcServer() {
  try {
    loop_.run_sync([impl = std::move(impl_)] { impl->stop(); });
  } catch (const std::exception&) {  // the loop has been stopped, and with it every connection
  }
}

Result<Address> RpcServer::listen(ListenOptions options) {
  // Name look-ups and binding may block: here, on the caller's thread.
  Address address = options.address;
  if (address.is_tcp() && !options.tls) {
    return Error{kExitUsage,
                 to_string(address) +
                     ": TCP works only with mutual TLS; `regrow certs init DIR` and `regrow certs "
                     "issue DIR --role controller` make the files"};
  }
  auto fd = address.is_tcp() ? bind_tcp(address) : bind_unix(address.path, options.socket_mode);
  if (!fd) return fd.error();
  auto served = loop_.run_sync([&] { return impl_->serve_port(std::move(options), kj::mv(*fd)); });
  if (!served) return served.error();
  return address;
}

}  // namespace regrow
