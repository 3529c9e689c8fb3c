#include "tools/live/process_facts.hpp"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <sstream>

#include "tools/doctor/small_files.hpp"

namespace memlab::tools {
namespace {

constexpr std::size_t most_command_bytes = 4096;
constexpr std::uint64_t second_ns = 1'000'000'000;

struct CloseFolder {
    void operator()(DIR* folder) const { closedir(folder); }
};
using Folder = std::unique_ptr<DIR, CloseFolder>;

template <class Number>
Number number_from(std::string_view text) {
    Number number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

bool is_number(std::string_view text) {
    return !text.empty() && std::all_of(text.begin(), text.end(),
                                        [](unsigned char c) { return std::isdigit(c) != 0; });
}

/// The path of version 2, else the first that is not the root.
std::string cgroup_of(const std::string& process) {
    std::istringstream lines(whole_file(process + "/cgroup"));
    std::string found;
    for (std::string line; std::getline(lines, line);) {
        const std::size_t second = line.find(':', line.find(':') + 1);
        if (second == std::string::npos) {
            continue;
        }
        const std::string path = line.substr(second + 1);
        if (path != "/" && (line.starts_with("0::") || found.empty())) {
            found = path;
        }
    }
    return found;
}

std::size_t count_entries(const std::string& path) {
    const std::vector<std::string> names = entries_of(path);
    return static_cast<std::size_t>(std::count_if(
        names.begin(), names.end(), [](const std::string& name) { return name[0] != '.'; }));
}

/// At most so much of it is kept.
std::string shown_command_of(const std::string& process) {
    return command_line_of(process).substr(0, most_command_bytes);
}

/// Processes without a parent of their own are given to these.
bool adopts(pid_t pid, const ProcessStat& stat) {
    return pid == 1 || stat.name == "systemd" || stat.name == "init" || stat.name == "tini" ||
           stat.name == "dumb-init" || stat.name == "docker-init" ||
           stat.name.starts_with("containerd-shim") || stat.name == "conmon";
}

bool looks_like_worker(const std::string& name, const std::string& command) {
    return name.starts_with("pt_data_worker") ||
           command.find("multiprocessing-fork") != std::string::npos ||
           command.find("multiprocessing.spawn") != std::string::npos ||
           command.find("multiprocessing.forkserver") != std::string::npos;
}

/// Whether each thread except the main one is in its exit, or has a SIGKILL before it, as all have
/// when one of them calls exit() or the process is killed.
bool threads_are_ending(const std::string& process, pid_t pid) {
    constexpr unsigned exiting = 0x4;  // PF_EXITING of the kernel's flags, proc_pid_stat(5)
    constexpr unsigned sigkill = 1U << (SIGKILL - 1);
    constexpr std::string_view pending = "SigPnd:";
    const std::vector<std::string> tasks = entries_of(process + "/task");
    const auto is_ending = [&](const std::string& id) {
        if (!is_number(id) || number_from<pid_t>(id) == pid) {
            return true;
        }
        const std::string task = process + "/task/" + id;
        const ProcessStat stat = process_stat(task);
        if (stat.fields.size() < 7 || (number_from<unsigned>(stat.fields[6]) & exiting) != 0) {
            return true;
        }
        const std::string status = whole_file(task + "/status");
        const std::size_t at = status.find(pending);
        return at != std::string::npos &&
               (std::strtoull(status.c_str() + at + pending.size(), nullptr, 16) & sigkill) != 0;
    };
    return !tasks.empty() && std::all_of(tasks.begin(), tasks.end(), is_ending);
}

void add_open_device(const char* target, OpenDevices* devices) {
    constexpr std::string_view begin = "/dev/nvidia";
    std::string_view path = target;
    if (!path.starts_with(begin)) {
        return;
    }
    path.remove_prefix(begin.size());
    if (path == "-uvm") {
        devices->uvm = true;
    } else if (is_number(path)) {
        const auto minor = number_from<unsigned>(path);
        if (std::find(devices->minors.begin(), devices->minors.end(), minor) ==
            devices->minors.end()) {
            devices->minors.push_back(minor);
        }
    }
}

}  // namespace

std::string container_of(std::string_view cgroup) {
    constexpr std::size_t id_length = 64;
    constexpr std::size_t shown = 12;
    // Docker, containerd, CRI-O and Podman: 64 hexadecimal digits, with or without a name before.
    const auto is_hex = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
    for (std::size_t at = 0; at + id_length <= cgroup.size();) {
        const auto* const begin = cgroup.data() + at;
        const auto* const end = std::find_if_not(begin, cgroup.data() + cgroup.size(), is_hex);
        if (static_cast<std::size_t>(end - begin) == id_length) {
            return std::string(cgroup.substr(at, shown));
        }
        at += static_cast<std::size_t>(end - begin) + 1;
    }
    for (const std::string_view begin :
         {"/lxc.payload.", "/lxc/", "/machine.slice/machine-", "/apptainer-", "/singularity-"}) {
        const std::size_t found = cgroup.find(begin);
        if (found != std::string_view::npos) {
            std::string_view name = cgroup.substr(found + begin.size());
            name = name.substr(0, name.find('/'));
            return std::string(name.ends_with(".scope") ? name.substr(0, name.size() - 6) : name);
        }
    }
    return {};
}

ProcessTable::ProcessTable(std::string proc) : proc_(std::move(proc)) {
    std::istringstream lines(whole_file(proc_ + "/stat"));
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("btime ")) {
            boot_wall_ns_ = number_from<std::uint64_t>(line.substr(6)) * second_ns;
        }
    }
    // Not getpwuid(): in a static program it would load libraries.
    std::istringstream users(whole_file("/etc/passwd"));
    for (std::string line; std::getline(users, line);) {
        const std::size_t name = line.find(':');
        const std::size_t password = line.find(':', name + 1);
        if (name != std::string::npos && password != std::string::npos) {
            users_.emplace_back(number_from<uid_t>(std::string_view(line).substr(password + 1)),
                                line.substr(0, name));
        }
    }
}

std::string ProcessTable::user_name(uid_t uid) {
    for (const auto& [id, name] : users_) {
        if (id == uid) {
            return name;
        }
    }
    return std::to_string(uid);
}

std::uint64_t ProcessTable::start_ticks(pid_t pid) const {
    const ProcessStat stat = process_stat(proc_ + "/" + std::to_string(pid));
    return stat.fields.size() < 20 ? 0 : number_from<std::uint64_t>(stat.fields[19]);
}

ProcessFacts ProcessTable::of(pid_t pid) {
    ProcessFacts facts;
    facts.pid = pid;
    const std::string process = proc_ + "/" + std::to_string(pid);
    const ProcessStat stat = process_stat(process);
    if (stat.fields.size() < 20) {
        return facts;
    }
    facts.visible = true;
    facts.name = stat.name;
    facts.state = stat.fields[0].empty() ? '?' : stat.fields[0][0];
    facts.parent = number_from<pid_t>(stat.fields[1]);
    const auto group = number_from<pid_t>(stat.fields[2]);
    facts.start_ticks = number_from<std::uint64_t>(stat.fields[19]);
    if (boot_wall_ns_ != 0) {
        const auto per_second = static_cast<std::uint64_t>(std::max(1L, sysconf(_SC_CLK_TCK)));
        facts.start_wall_ns = boot_wall_ns_ + facts.start_ticks * (second_ns / per_second);
    }
    facts.command = shown_command_of(process);
    if (facts.command.empty()) {
        facts.command = "[" + facts.name + "]";
    }
    struct stat status {};
    if (::stat(process.c_str(), &status) == 0) {
        facts.uid = status.st_uid;
        facts.user = user_name(facts.uid);
        facts.of_another = geteuid() != 0 && facts.uid != geteuid();
    }
    std::array<char, 4096> directory{};
    if (readlink((process + "/cwd").c_str(), directory.data(), directory.size() - 1) > 0) {
        facts.directory = directory.data();
    }
    facts.cgroup = cgroup_of(process);
    facts.container = container_of(facts.cgroup);
    facts.zombie = facts.state == 'Z' || facts.state == 'X';
    facts.threads_left = facts.zombie && count_entries(process + "/task") > 1;
    facts.is_ending = facts.threads_left && threads_are_ending(process, pid);
    const std::string parent = proc_ + "/" + std::to_string(facts.parent);
    const ProcessStat of_parent = facts.parent > 0 ? process_stat(parent) : ProcessStat();
    facts.parent_command = facts.parent > 0 ? shown_command_of(parent) : std::string();
    // In a container process 1 may be the program itself, and this one a child that it started.
    facts.parent_gone = facts.parent > 0 && facts.pid != 1 && adopts(facts.parent, of_parent) &&
                        group != facts.parent && facts.command != facts.parent_command;
    facts.leader_gone = group > 1 && group != pid &&
                        process_stat(proc_ + "/" + std::to_string(group)).fields.empty();
    facts.worker = looks_like_worker(facts.name, facts.command);
    return facts;
}

std::vector<OpenDevices> ProcessTable::with_open_devices() const {
    std::vector<OpenDevices> found;
    const Folder folder(opendir(proc_.c_str()));
    while (folder != nullptr) {
        const dirent* const entry = readdir(folder.get());
        if (entry == nullptr) {
            break;
        }
        if (!is_number(entry->d_name)) {
            continue;
        }
        OpenDevices devices;
        devices.pid = number_from<pid_t>(entry->d_name);
        const std::string descriptors = proc_ + "/" + entry->d_name + "/fd";
        const Folder files(opendir(descriptors.c_str()));
        while (files != nullptr) {
            const dirent* const file = readdir(files.get());
            if (file == nullptr) {
                break;
            }
            std::array<char, 64> target{};
            if (readlinkat(dirfd(files.get()), file->d_name, target.data(), target.size() - 1) >
                0) {
                add_open_device(target.data(), &devices);
            }
        }
        if (devices.uvm || !devices.minors.empty()) {
            std::sort(devices.minors.begin(), devices.minors.end());
            found.push_back(std::move(devices));
        }
    }
    std::sort(found.begin(), found.end(),
              [](const OpenDevices& a, const OpenDevices& b) { return a.pid < b.pid; });
    return found;
}

bool ProcessTable::has_pids_of_the_host() const {
    // The inode of the initial namespace is a constant of the kernel's.
    constexpr std::string_view initial = "pid:[4026531836]";
    std::array<char, 64> name{};
    const ssize_t length = readlink((proc_ + "/self/ns/pid").c_str(), name.data(), name.size());
    return length > 0 && std::string_view(name.data(), static_cast<std::size_t>(length)) == initial;
}

}  // namespace memlab::tools
