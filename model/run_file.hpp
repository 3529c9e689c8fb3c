// What memlab-run says of a run that has a folder of its own, in memlab-run.<host>.<pid>.json
// beside the reports: what only it knows. memlab-run writes it, memlab-report reads it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/report_shape.hpp"

namespace memlab::model {

struct RunFile {
    static constexpr const char* format = "memlab-run";
    static constexpr std::uint64_t known_version = 1;

    /// A process in which memlab was active.
    struct Recorded {
        std::uint64_t pid = 0;
        std::uint64_t parent_pid = 0;
        std::uint64_t start_ticks = 0;
        std::string executable = {};
        std::vector<std::string> arguments = {};
        std::string host = {};
        std::uint64_t start_wall_ns = 0;
        std::uint64_t duration_ns = 0;
        std::string ended = {};
        std::optional<std::string> signal = {};
        std::optional<std::uint64_t> exit_code = {};
        Named<std::string> ranks = {};
        std::optional<std::string> report = {};
        std::optional<std::string> log = {};
        bool recovered = false;
        std::optional<std::uint64_t> held_bytes = {};

        bool running() const { return ended == "running"; }

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.number({"pid", "its id"}, self.pid);
            visit.number({"parent_pid", "its parent's"}, self.parent_pid);
            visit.number({"start_ticks",
                          "when it started, of `/proc/PID/stat`; an exec keeps it; 0: unknown"},
                         self.start_ticks);
            visit.text({"executable", "absolute path"}, self.executable);
            visit.texts({"arguments", "of its command line"}, self.arguments);
            visit.text({"host", "the name of the machine"}, self.host);
            visit.number({"start_wall_ns", "when it started, since the Unix epoch"},
                         self.start_wall_ns);
            visit.number({"duration_ns", "until it ended, or as long as it was recorded"},
                         self.duration_ns);
            visit.text({"ended", "as in the report; empty where nothing could be read",
                        one_of("exit", "quick_exit", "cut off", "running", "")},
                       self.ended);
            visit.text_or_null({"signal", "that killed it, as in the report"}, self.signal);
            visit.number_or_null({"exit_code", "as in the report"}, self.exit_code);
            visit.named_texts({"ranks", "its rank variables, name to value"}, self.ranks);
            visit.text_or_null({"report",
                                "name of the file in the folder, or absolute path outside; null "
                                "where there is none"},
                               self.report);
            visit.text_or_null({"log", "the same of its event log"}, self.log);
            visit.flag({"recovered", "`memlab-run` wrote the report from the log"}, self.recovered);
            visit.number_or_null(
                {"held_bytes", "of one that is running: what it had reserved then; else null"},
                self.held_bytes);
        }
    };
    /// A process without CUDA between memlab-run and recorded ones.
    struct Ancestor {
        std::uint64_t pid = 0;
        std::uint64_t parent_pid = 0;
        std::string command = {};

        template <typename Self, typename Visitor>
        static void fields(Self& self, Visitor& visit) {
            visit.number({"pid", "its id"}, self.pid);
            visit.number({"parent_pid", "its parent's"}, self.parent_pid);
            visit.text({"command", "one line, at most 160 bytes"}, self.command);
        }
    };
    std::string memlab_version = {};
    std::string host = {};
    std::uint64_t pid = 0;
    std::vector<std::string> command = {};
    std::string directory = {};
    std::uint64_t start_wall_ns = 0;
    std::uint64_t end_wall_ns = 0;
    std::uint64_t command_pid = 0;
    std::optional<std::string> signal = {};
    std::optional<std::uint64_t> exit_code = {};
    Named<std::string> replaced = {};
    std::vector<Recorded> processes = {};
    std::vector<Ancestor> ancestors = {};

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.constant({"format", "the format's name"}, format);
        visit.constant({"version", "of the format"}, known_version);
        visit.text({"memlab_version", "of the memlab that wrote it"}, self.memlab_version);
        visit.text({"host", "the name of the machine"}, self.host);
        visit.number({"pid", "of `memlab-run` itself"}, self.pid);
        visit.texts({"command", "that was run, with its arguments"}, self.command);
        visit.text({"directory", "in which it ran"}, self.directory);
        visit.number({"start_wall_ns", "when the command started, since the Unix epoch"},
                     self.start_wall_ns);
        visit.number({"end_wall_ns", "when it had ended"}, self.end_wall_ns);
        visit.number({"command_pid", "the command's id"}, self.command_pid);
        visit.text_or_null({"signal", "the signal that killed the command; null where it exited"},
                           self.signal);
        visit.number_or_null({"exit_code", "the command's; null where a signal killed it"},
                             self.exit_code);
        visit.named_texts({"replaced", "the variables that `--replace` set, name to value"},
                          self.replaced);
        visit.line();
        visit.table({"processes",
                     "those in which memlab was active, in the order in which recording started"},
                    self.processes, Layout::lines);
        visit.line();
        visit.table({"ancestors", "processes without CUDA between `memlab-run` and these"},
                    self.ancestors, Layout::lines);
    }
};

}  // namespace memlab::model
