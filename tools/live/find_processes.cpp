#include "tools/live/find_processes.hpp"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include "tools/doctor/small_files.hpp"

namespace memlab::tools {
namespace {

using interpose::abstract_socket_name;
using interpose::LiveAddress;
using interpose::socket_file_name;
using interpose::socket_folder;

template <typename Number>
std::optional<Number> number_in(std::string_view text) {
    Number number{};
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
    return problem == std::errc() && end == text.data() + text.size() && !text.empty()
               ? std::optional(number)
               : std::nullopt;
}

std::vector<std::string> words_of(const std::string& text) {
    std::istringstream words(text);
    std::vector<std::string> all;
    for (std::string word; words >> word;) {
        all.push_back(word);
    }
    return all;
}

std::vector<pid_t> all_processes() {
    std::vector<pid_t> processes;
    for (const std::string& name : entries_of("/proc")) {
        if (const auto process = number_in<pid_t>(name)) {
            processes.push_back(*process);
        }
    }
    return processes;
}

std::string proc(pid_t process, const char* what) {
    return "/proc/" + std::to_string(process) + "/" + what;
}

/// A value of the environment that the process was started with; empty: none, or not readable.
std::string variable_of(pid_t process, std::string_view name) {
    const std::string environment = whole_file(proc(process, "environ"));
    for (std::size_t begin = 0; begin < environment.size();) {
        const std::size_t end = std::min(environment.find('\0', begin), environment.size());
        const std::string_view entry = std::string_view(environment).substr(begin, end - begin);
        if (entry.starts_with(name) && entry.substr(name.size()).starts_with('=')) {
            return std::string(entry.substr(name.size() + 1));
        }
        begin = end + 1;
    }
    return {};
}

/// The user's id in the namespace of the process.
uid_t inner_user(pid_t process, uid_t user) {
    std::istringstream map(whole_file(proc(process, "uid_map")));
    std::uint64_t inside = 0;
    std::uint64_t outside = 0;
    std::uint64_t count = 0;
    while (map >> inside >> outside >> count) {
        if (user >= outside && user - outside < count) {
            return static_cast<uid_t>(inside + (user - outside));
        }
    }
    return user;
}

bool same_namespace(pid_t process, const char* kind) {
    struct stat own {};
    struct stat other {};
    const std::string name = std::string("ns/") + kind;
    return ::stat(("/proc/self/" + name).c_str(), &own) != 0 ||
           ::stat(proc(process, name.c_str()).c_str(), &other) != 0 ||
           (own.st_dev == other.st_dev && own.st_ino == other.st_ino);
}

/// The folders in which a process of that user may have its socket.
std::vector<std::string> folders(pid_t process, uid_t user) {
    std::vector<std::string> all;
    const auto add = [&](const std::string& folder) {
        if (std::find(all.begin(), all.end(), folder) == all.end()) {
            all.push_back(folder);
        }
    };
    if (const std::string theirs = variable_of(process, "XDG_RUNTIME_DIR"); !theirs.empty()) {
        add(socket_folder(theirs.c_str(), user));
    }
    if (const char* const own = std::getenv("XDG_RUNTIME_DIR")) {
        add(socket_folder(own, user));
    }
    add("/run/user/" + std::to_string(user) + "/memlab");
    add(socket_folder(nullptr, user));
    return all;
}

/// The ids of processes whose sockets are in the folder.
void add_processes_in(const std::string& folder, std::set<pid_t>& found) {
    constexpr std::string_view extension = ".sock";
    for (const std::string& name : entries_of(folder)) {
        if (name.size() > extension.size() && name.ends_with(extension)) {
            const std::string_view stem(name.data(), name.size() - extension.size());
            const auto process = number_in<pid_t>(stem);
            if (!process) {
                continue;
            }
            if (owner_of(*process).exists) {
                found.insert(*process);
            } else {
                const std::string path = std::string(folder).append("/").append(name);
                remove_stale({LiveAddress::at(path), path});
            }
        }
    }
}

/// visit(user, process) for the abstract sockets of this network namespace.
template <typename Visit>
void each_abstract_socket(const Visit& visit) {
    std::istringstream lines(whole_file("/proc/net/unix"));
    for (std::string line; std::getline(lines, line);) {
        constexpr std::string_view prefix = "@memlab-";
        const std::size_t at = line.find(prefix);
        if (at == std::string::npos) {
            continue;
        }
        const std::string_view rest = std::string_view(line).substr(at + prefix.size());
        const std::size_t dash = rest.find('-');
        if (dash != std::string_view::npos) {
            const auto user = number_in<uid_t>(rest.substr(0, dash));
            const auto process = number_in<pid_t>(rest.substr(dash + 1));
            if (user && process) {
                visit(*user, *process);
            }
        }
    }
}

}  // namespace

ProcessOwner owner_of(pid_t process) {
    const std::string status = whole_file(proc(process, "status"));
    ProcessOwner owner;
    std::istringstream lines(status);
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("Uid:")) {
            const std::vector<std::string> words = words_of(line.substr(4));
            owner.exists = words.size() > 1;
            owner.user = owner.exists ? number_in<uid_t>(words[1]).value_or(0) : 0;
        } else if (line.starts_with("NSpid:")) {
            const std::vector<std::string> words = words_of(line.substr(6));
            owner.inner_pid = words.empty() ? 0 : number_in<pid_t>(words.back()).value_or(0);
        }
    }
    owner.inner_pid = owner.inner_pid == 0 ? process : owner.inner_pid;
    owner.inner_user = inner_user(process, owner.user);
    return owner;
}

pid_t process_id(std::string_view text) {
    return std::max(number_in<pid_t>(text).value_or(0), 0);
}

bool shares_files(pid_t process) {
    return same_namespace(process, "mnt");
}

std::string working_directory_of(pid_t process) {
    std::error_code problem;
    return std::filesystem::read_symlink(proc(process, "cwd"), problem).string();
}

std::string command_line_of(pid_t process) {
    return command_line_of("/proc/" + std::to_string(process));
}

std::string user_text(uid_t user) {
    // By the file: in a program without shared libraries getpwuid() knows no more.
    const std::string number = std::to_string(user);
    std::istringstream lines(whole_file("/etc/passwd"));
    for (std::string line; std::getline(lines, line);) {
        const std::size_t name_end = line.find(':');
        const std::size_t begin =
            name_end == std::string::npos ? name_end : line.find(':', name_end + 1);
        if (begin != std::string::npos &&
            line.compare(begin + 1, number.size() + 1, number + ":") == 0) {
            return "user " + line.substr(0, name_end) + " (" + number + ")";
        }
    }
    return "user " + number;
}

std::vector<SocketPlace> socket_places(pid_t process, const ProcessOwner& owner) {
    std::vector<SocketPlace> places;
    const auto add_path = [&](const std::string& path) {
        places.push_back({LiveAddress::at(path), path});
    };
    const std::vector<std::string> all = folders(process, owner.inner_user);
    const std::string name = "/" + socket_file_name(owner.inner_pid);
    if (shares_files(process)) {
        for (const std::string& folder : all) {
            add_path(folder + name);
        }
    }
    places.push_back(
        {LiveAddress::abstract(abstract_socket_name(owner.inner_user, owner.inner_pid)), {}});
    for (const std::string& folder : all) {
        add_path(proc(process, "root").append(folder).append(name));
    }
    // One that began as another user.
    each_abstract_socket([&](uid_t user, pid_t listener) {
        if (listener == owner.inner_pid && user != owner.inner_user) {
            places.push_back({LiveAddress::abstract(abstract_socket_name(user, listener)), {}});
        }
    });
    return places;
}

void remove_stale(const SocketPlace& place) {
    struct stat status {};
    if (place.path.empty() || !place.address.fits() || ::lstat(place.path.c_str(), &status) != 0 ||
        !S_ISSOCK(status.st_mode) || status.st_uid != ::geteuid()) {
        return;
    }
    const int descriptor = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor >= 0 && ::connect(descriptor, place.address.get(), place.address.size()) != 0 &&
        errno == ECONNREFUSED) {
        ::unlink(place.path.c_str());
    }
    ::close(descriptor);
}

std::vector<pid_t> find_live_processes() {
    std::set<pid_t> found;
    const uid_t user = ::geteuid();
    for (const std::string& folder : folders(::getpid(), user)) {
        add_processes_in(folder, found);
    }
    each_abstract_socket([&](uid_t, pid_t process) { found.insert(process); });
    if (user == 0) {
        for (const std::string& name : entries_of("/tmp")) {
            if (name.starts_with("memlab-")) {
                add_processes_in("/tmp/" + name, found);
            }
        }
        for (const std::string& name : entries_of("/run/user")) {
            add_processes_in("/run/user/" + name + "/memlab", found);
        }
    }
    // Those with other folders, as in a container.
    for (const pid_t process : all_processes()) {
        if (found.contains(process) || shares_files(process)) {
            continue;
        }
        const ProcessOwner owner = owner_of(process);
        for (const SocketPlace& place : socket_places(process, owner)) {
            if (!place.path.empty() && ::access(place.path.c_str(), F_OK) == 0) {
                found.insert(process);
            }
        }
    }
    std::vector<pid_t> processes;
    for (const pid_t process : found) {
        const ProcessOwner owner = owner_of(process);
        if (owner.exists && (user == 0 || owner.user == user)) {
            processes.push_back(process);
        }
    }
    return processes;
}

}  // namespace memlab::tools
