#include "tools/top/errands.hpp"

#include <algorithm>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "report/text/signal_cleanup.hpp"
#include "tools/live/client.hpp"
#include "tools/live/documents.hpp"

namespace memlab::tools {
namespace {

/// The outcome, one line.
std::string carry_out(const KeyCommand& command) {
    Verb verb = Verb::status;
    std::vector<std::string> arguments;
    switch (command.what) {
        case KeyCommand::What::mark:
            verb = Verb::mark;
            arguments = {command.name};
            break;
        case KeyCommand::What::snapshot:
            verb = Verb::snapshot;
            break;
        case KeyCommand::What::empty_cache:
            verb = Verb::empty_cache;
            break;
        case KeyCommand::What::yield:
            verb = Verb::yield;
            break;
        case KeyCommand::What::restore:
            verb = Verb::restore;
            break;
        case KeyCommand::What::none:
        case KeyCommand::What::quit:
            return {};
    }
    const LiveReply reply = ask_process(command.pid, verb, arguments);
    std::string problem = reply.problem;
    const auto done = reply.ok() ? read_action(reply.document, &problem) : std::nullopt;
    return done ? std::to_string(command.pid) + ": " + done->text : problem;
}

}  // namespace

/// Its threads have a part in it, and outlive the Errands.
struct Errands::Shared {
    void done(const KeyCommand& command, std::string outcome) {
        const std::lock_guard lock(mutex);
        std::erase(under_way, command);
        if (tell) {
            tell(std::move(outcome));
        }
    }

    std::mutex mutex;
    std::function<void(std::string)> tell;  ///< none: it is over
    std::vector<KeyCommand> under_way;
};

Errands::Errands(std::function<void(std::string)> tell) : shared_(std::make_shared<Shared>()) {
    shared_->tell = std::move(tell);
}

Errands::~Errands() {
    const std::lock_guard lock(shared_->mutex);
    shared_->tell = nullptr;
}

void Errands::begin(const KeyCommand& command) {
    {
        const std::lock_guard lock(shared_->mutex);
        std::vector<KeyCommand>& under_way = shared_->under_way;
        if (std::find(under_way.begin(), under_way.end(), command) != under_way.end()) {
            return;
        }
        under_way.push_back(command);
    }
    const report::SignalBlocker blocker(report::SignalBlocker::Which::all);
    try {
        std::thread([shared = shared_, command] {
            shared->done(command, carry_out(command));
        }).detach();
    } catch (const std::system_error& error) {
        shared_->done(command, error.what());
    }
}

}  // namespace memlab::tools
