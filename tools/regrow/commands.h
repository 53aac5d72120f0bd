// One function per command family; each adds its commands to the parser. Called once by main.
#pragma once

namespace CLI {
class App;
}

namespace regrow::cli {

class Cli;

void add_run_commands(CLI::App& app, Cli& cli);      // run, attach, submit
void add_recipe_commands(CLI::App& app, Cli& cli);   // init, validate
void add_list_commands(CLI::App& app, Cli& cli);     // status, jobs, hosts, devices, ranks
void add_show_commands(CLI::App& app, Cli& cli);     // show, events
void add_log_commands(CLI::App& app, Cli& cli);      // logs
void add_act_commands(CLI::App& app, Cli& cli);      // cancel, pause, resume, cordon, uncordon
void add_fault_commands(CLI::App& app, Cli& cli);    // fault device | kill-rank | cut-link
void add_cert_commands(CLI::App& app, Cli& cli);     // certs init | issue
void add_journal_commands(CLI::App& app, Cli& cli);  // journal verify | salvage
void add_service_commands(CLI::App& app, Cli& cli);  // controller, agent
void add_dev_command(CLI::App& app, Cli& cli);       // dev
void add_shell_command(CLI::App& app, Cli& cli);     // shell

}  // namespace regrow::cli
