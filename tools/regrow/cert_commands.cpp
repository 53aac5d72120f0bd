// certs init | issue: a certificate authority in a directory, for clusters that span machines.
#include <CLI/CLI.hpp>
#include <memory>

#include "tools/regrow/cli.h"
#include "tools/regrow/commands.h"
#include "tools/regrow/text.h"
#include "transport/certs.h"

namespace regrow::cli {
namespace {

int init_certs(const std::string& directory, int days) {
  or_fail(certs_init(directory, days));
  say("made a certificate authority in " + directory + "\n" + "next:  regrow certs issue " +
      directory + " --role controller\n" + "       regrow certs issue " + directory +
      " --role agent --name h1\n" + "keep " + directory +
      "/ca.key to yourself: whoever can read it can become anyone\n");
  return kExitOk;
}

int issue_cert(Cli& cli, const std::string& directory, const IssueOptions& options) {
  auto files = or_fail(certs_issue(directory, options));
  if (cli.json()) {
    Json out{{"ca", files.ca}, {"certificate", files.certificate}, {"key", files.key}};
    out["expires_us"] = or_fail(certificate_expiry(files.certificate)) * 1000000;
    say(dump(out, 2) + "\n");
    return kExitOk;
  }
  auto until = or_fail(certificate_expiry(files.certificate));
  std::string name = options.role + (options.name.empty() ? "" : "/" + options.name);
  say("made " + files.certificate + " and " + files.key + " for \"" + name + "\", valid until " +
      date_time_text(until * 1000000) + "\n" + "give these two and " + files.ca +
      " to the one they are for; --certs names the directory\n");
  return kExitOk;
}

}  // namespace

void add_cert_commands(CLI::App& app, Cli& cli) {
  auto* certs = add_command(app, cli,
                            {"certs", "Running a cluster", "Makes the certificates that TCP needs",
                             "regrow certs init certs"},
                            false, false);
  certs->require_subcommand(1);

  struct Options {
    std::string directory;
    int ca_days = 3650;
    IssueOptions issue;
  };
  auto o = std::make_shared<Options>();
  auto* init = add_command(*certs, cli,
                           {"init", "Certificates", "Makes a certificate authority in a directory",
                            "regrow certs init certs"},
                           false, false);
  init->add_option("DIR", o->directory, "Directory; made if it is not there")->required();
  init->add_option("--days", o->ca_days, "How long it is valid");
  on_run(init, cli, [o] { return init_certs(o->directory, o->ca_days); });

  auto* issue = add_command(*certs, cli,
                            {"issue", "Certificates", "Makes a certificate with a role",
                             "regrow certs issue certs --role controller\n"
                             "regrow certs issue certs --role agent --name h1\n"
                             "regrow certs issue certs --role operator --name ann"},
                            false, true);
  issue->add_option("DIR", o->directory, "Directory of `regrow certs init`")->required();
  issue->add_option("--role", o->issue.role, "controller, agent, operator or viewer")->required();
  issue->add_option("--name", o->issue.name, "Host or person; a controller has none");
  issue->add_option("--days", o->issue.days, "How long it is valid");
  on_run(issue, cli, [&cli, o] { return issue_cert(cli, o->directory, o->issue); });
}

}  // namespace regrow::cli
