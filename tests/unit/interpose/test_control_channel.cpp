// The thread that answers, in this process: many peers at once, replies larger than a socket takes,
// and an end while requests are under way.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "interpose/control/control_channel.hpp"
#include "tests/catch.hpp"

using namespace memlab::interpose;

namespace {

std::atomic<int> answered{0};
std::string socket_path;  // of the channel of the test

/// `sites N`: a document of N bytes; `mark`: a refusal.
void answer_with_bytes(const Request& request, Answer* answer) {
    ++answered;
    if (request.verb == Verb::mark) {
        answer->problem = "not\nhere";
        return;
    }
    const std::string bytes(request.count == 0 ? "2" : request.arguments().front());
    answer->document.assign(static_cast<std::size_t>(std::atol(bytes.c_str())), 'x');
}

class AskingPeer {
  public:
    AskingPeer() : socket_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        const LiveAddress address = LiveAddress::at(socket_path);
        connected_ = ::connect(socket_, address.get(), address.size()) == 0;
    }
    ~AskingPeer() { ::close(socket_); }
    AskingPeer(const AskingPeer&) = delete;
    AskingPeer& operator=(const AskingPeer&) = delete;

    bool connected() const { return connected_; }
    bool send(const std::string& text) const {
        return ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL) ==
               static_cast<ssize_t>(text.size());
    }
    /// Bytes of the document; -1: an error, -2: the end.
    long read_reply() {
        ReplyHead head;
        std::size_t bytes = 0;
        char buffer[4096];
        while (head.state() == ReplyHead::State::incomplete ||
               (head.state() == ReplyHead::State::document && bytes < head.document_bytes())) {
            // No more than this reply: the next one may be behind it.
            const std::size_t most = head.state() == ReplyHead::State::incomplete
                                         ? 1
                                         : std::min(sizeof buffer, head.document_bytes() - bytes);
            const ssize_t got = ::recv(socket_, buffer, most, 0);
            if (got <= 0) {
                return -2;
            }
            const auto size = static_cast<std::size_t>(got);
            bytes += size - head.take({buffer, size});
        }
        return head.state() == ReplyHead::State::document ? static_cast<long>(bytes) : -1;
    }

  private:
    const int socket_;
    bool connected_ = false;
};

/// Its thread may outlive the test.
ControlChannel& never_destroyed() {
    static auto* const all = new std::vector<std::unique_ptr<ControlChannel>>;
    return *all->emplace_back(std::make_unique<ControlChannel>());
}

/// In a folder of the test's own.
class StartedChannel {
  public:
    StartedChannel() {
        char name[] = "/tmp/memlab-test.XXXXXX";
        folder_ = ::mkdtemp(name);
        ::setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
        socket_path = folder_ + "/memlab/" + socket_file_name(::getpid());
        started = channel.start(&answer_with_bytes);
    }
    ~StartedChannel() {
        channel.stop();
        ::rmdir((folder_ + "/memlab").c_str());
        ::rmdir(folder_.c_str());
    }
    StartedChannel(const StartedChannel&) = delete;
    StartedChannel& operator=(const StartedChannel&) = delete;

    bool has_file() const {
        struct stat status {};
        return ::stat(socket_path.c_str(), &status) == 0;
    }

    ControlChannel& channel = never_destroyed();
    bool started = false;

  private:
    std::string folder_;
};

/// Those that have its path: the one that listens, and those of peers at its end.
int sockets_of_this_test() {
    int count = 0;
    for (int descriptor = 3; descriptor < 8192; ++descriptor) {
        sockaddr_un name{};
        socklen_t size = sizeof name;
        if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&name), &size) == 0 &&
            std::string(name.sun_path).starts_with(socket_path)) {
            ++count;
        }
    }
    return count;
}

}  // namespace

TEST_CASE("Many peers are answered at once, each in its order") {
    StartedChannel own;
    REQUIRE(own.started);
    CHECK(own.has_file());
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    threads.reserve(8);
    for (int i = 0; i < 8; ++i) {
        threads.emplace_back([&wrong, i] {
            AskingPeer peer;
            for (int round = 0; round < 100; ++round) {
                const int bytes = 1 + i * 1000 + round;
                const std::string sites = "sites\t" + std::to_string(bytes) + "\n";
                std::string requests = sites;
                requests.append("mark\tx\n").append(sites);
                if (!peer.send(requests) || peer.read_reply() != bytes || peer.read_reply() != -1 ||
                    peer.read_reply() != bytes) {
                    ++wrong;
                }
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    CHECK(wrong == 0);
    own.channel.stop();
    CHECK(!own.has_file());
}

TEST_CASE("A reply that is larger than a socket takes comes whole") {
    StartedChannel own;
    REQUIRE(own.started);
    AskingPeer peer;
    REQUIRE(peer.send("sites\t20000000\nsites\t5\n"));
    CHECK(peer.read_reply() == 20'000'000);
    CHECK(peer.read_reply() == 5);
    REQUIRE(peer.send("sites\t99999999\n"));  // more than a document may have
    CHECK(peer.read_reply() == -1);
    own.channel.stop();
}

TEST_CASE("The end comes while requests are under way") {
    for (int round = 0; round < 20; ++round) {
        StartedChannel own;
        REQUIRE(own.started);
        std::vector<std::thread> threads;
        threads.reserve(4);
        for (int i = 0; i < 4; ++i) {
            threads.emplace_back([] {
                AskingPeer peer;
                while (peer.send("sites\t100000\n") && peer.read_reply() == 100'000) {
                }
            });
        }
        ::usleep(1000 * static_cast<unsigned>(round % 5));
        own.channel.stop();
        const int then = answered.load();
        CHECK(!own.has_file());
        for (std::thread& thread : threads) {
            thread.join();  // each connection ends
        }
        CHECK(answered.load() == then);
    }
}

TEST_CASE("A child has nothing of it") {
    StartedChannel own;
    REQUIRE(own.started);
    AskingPeer peer;
    REQUIRE(peer.send("status\n"));
    CHECK(peer.read_reply() == 2);
    CHECK(sockets_of_this_test() == 2);
    own.channel.before_fork();
    const pid_t child = ::fork();
    if (child == 0) {
        own.channel.close_after_fork();
        ::_exit(sockets_of_this_test());
    }
    own.channel.after_fork_in_parent();
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WEXITSTATUS(status) == 0);
    REQUIRE(peer.send("status\n"));
    CHECK(peer.read_reply() == 2);
    own.channel.stop();
}
