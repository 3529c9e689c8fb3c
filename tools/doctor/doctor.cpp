#include "tools/doctor/doctor.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "own_version.hpp"
#include "report/text/page.hpp"
#include "tools/doctor/command_file.hpp"
#include "tools/doctor/environment.hpp"
#include "tools/doctor/pythons.hpp"
#include "tools/doctor/system.hpp"

namespace memlab::tools {

namespace {

using report::Page;

constexpr const char* usual_loader = "/lib64/ld-linux-x86-64.so.2";

/// What to set, one after the other, when a program misbehaves under memlab.
struct Switch {
    const char* option;    ///< of memlab-run
    const char* variable;  ///< the same without it
    const char* meaning;
};
constexpr std::array<Switch, 5> switches{{
    {"--option FILL=zero", "MEMLAB_FILL=zero",
     "if results differ: the program reads memory that it never wrote, and plain CUDA mostly "
     "hands out zeros"},
    {"--no-pool", "MEMLAB_POOL=off", "record only: all memory comes from the driver"},
    {"--option BACKEND=classic", "MEMLAB_BACKEND=classic",
     "the pool takes segments by cuMemAlloc instead of mapping memory"},
    {"--option CUPTI=off", "MEMLAB_CUPTI=off", "do not use CUPTI"},
    {"--option DISABLE=on", "MEMLAB_DISABLE=on", "the library is loaded and does nothing"},
}};

constexpr std::size_t subject_width = 13;

std::string mark(const Page& page, Weight weight) {
    switch (weight) {
        case Weight::fine:
            return "  ";
        case Weight::note:
            return page.dim("- ");
        case Weight::limit:
            return page.yellow("! ");
        default:
            return page.red("X ");
    }
}

void add_findings(Page* page, const std::string& title, const Findings& findings) {
    if (findings.empty()) {
        return;
    }
    page->heading(title);
    for (const Finding& finding : findings) {
        std::string subject = page->clean(finding.subject);
        subject.resize(std::max(subject.size() + 1, subject_width), ' ');
        page->paragraph(mark(*page, finding.weight) + subject, page->clean(finding.fact));
        if (!finding.advice.empty()) {
            page->paragraph(std::string(2 + subject_width, ' '), page->clean(finding.advice));
        }
    }
}

const char* weight_name(Weight weight) {
    switch (weight) {
        case Weight::fine:
            return "fine";
        case Weight::note:
            return "note";
        case Weight::limit:
            return "limit";
        default:
            return "blocked";
    }
}

const char* verdict_text(Weight weight, bool has_command) {
    switch (weight) {
        case Weight::fine:
        case Weight::note:
            return has_command ? "memlab records this command." : "memlab works here.";
        case Weight::limit:
            return has_command ? "memlab records this command, with the limits marked !."
                               : "memlab works here, with the limits marked !.";
        default:
            return has_command ? "memlab would not record this command: see what is marked X."
                               : "memlab would record nothing here: see what is marked X.";
    }
}

nlohmann::json as_json(const Findings& findings) {
    nlohmann::json list = nlohmann::json::array();
    for (const Finding& finding : findings) {
        list.push_back({{"weight", weight_name(finding.weight)},
                        {"subject", finding.subject},
                        {"fact", finding.fact},
                        {"advice", finding.advice}});
    }
    return list;
}

}  // namespace

Weight Diagnosis::verdict() const {
    Weight heaviest = Weight::fine;
    for (const Findings* part : {&system, &environment, &command}) {
        for (const Finding& finding : *part) {
            heaviest = std::max(heaviest, finding.weight);
        }
    }
    return heaviest;
}

int Diagnosis::exit_code() const {
    return verdict() == Weight::blocked ? 1 : 0;
}

Diagnosis diagnose(const DoctorRequest& request) {
    Diagnosis diagnosis;
    diagnosis.variables = request.variables;
    diagnosis.has_command = !request.command.empty();
    std::string loader = usual_loader;
    if (diagnosis.has_command) {
        CommandFile command =
            examine_command(request.command[0], request.library, request.variables);
        diagnosis.command = std::move(command.findings);
        if (read_python(command.program)) {
            if (auto names = names_finding(request.command, request.variables)) {
                diagnosis.command.push_back(std::move(*names));
            }
        }
        if (is_glibc_loader(command.loader)) {
            loader = command.loader;
        }
    }
    diagnosis.system = examine_system(request.library, loader, request.variables);
    diagnosis.environment = examine_environment(request.library, request.variables);
    diagnosis.pythons = examine_pythons(request.variables);
    return diagnosis;
}

std::string render_page(const Diagnosis& diagnosis) {
    Page page(report::style_for(STDOUT_FILENO, report::ColorMode::automatic, false));
    page.heading(std::string("memlab ") + own_version,
                 verdict_text(diagnosis.verdict(), diagnosis.has_command));
    add_findings(&page, "Command", diagnosis.command);
    add_findings(&page, "Machine", diagnosis.system);
    add_findings(&page, "Environment", diagnosis.environment);
    add_findings(&page, "Pythons in PATH", diagnosis.pythons);
    page.heading("A run would set");
    for (const auto& [name, value] : diagnosis.variables) {
        std::string entry = name;
        entry.append("=").append(value);
        page.line("  " + page.clean(entry));
    }
    page.heading("Never recorded");
    page.paragraph("  ",
                   "Programs that are static, set-user-id or use another libc; what is loaded with "
                   "RTLD_DEEPBIND or dlmopen. Memory of contexts, modules and kernels is measured, "
                   "not intercepted (memlab-report ledger). memlab-run --fail-on-bypass tells "
                   "whether memory reached the driver without memlab.");
    page.heading("If a program misbehaves under memlab", "try in this order");
    std::size_t number = 0;
    for (const Switch& each : switches) {
        std::string option = std::to_string(++number) + "  memlab-run " + each.option;
        option.resize(std::max(option.size() + 2, std::size_t{40}), ' ');
        page.paragraph("  " + option, each.meaning);
    }
    page.paragraph("  ",
                   "The first that helps shows which part is responsible: please report it, with "
                   "this output. Without memlab-run: " +
                       std::string(switches[0].variable) + " and so on.");
    return page.take();
}

std::string render_json(const Diagnosis& diagnosis) {
    nlohmann::json document;
    document["format"] = "memlab-doctor";
    document["version"] = 1;
    document["memlab"] = own_version;
    document["verdict"] = weight_name(diagnosis.verdict());
    document["exit_code"] = diagnosis.exit_code();
    document["command"] =
        diagnosis.has_command ? as_json(diagnosis.command) : nlohmann::json(nullptr);
    document["machine"] = as_json(diagnosis.system);
    document["environment"] = as_json(diagnosis.environment);
    document["pythons"] = as_json(diagnosis.pythons);
    document["variables"] = nlohmann::json::object();
    for (const auto& [name, value] : diagnosis.variables) {
        document["variables"][name] = value;
    }
    document["switches"] = nlohmann::json::array();
    for (const Switch& each : switches) {
        document["switches"].push_back(
            {{"option", each.option}, {"variable", each.variable}, {"meaning", each.meaning}});
    }
    return document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace memlab::tools
