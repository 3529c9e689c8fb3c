#include "tests/model_check/notification.hpp"

#include <condition_variable>
#include <mutex>

namespace memlab::model_check {

namespace {
constinit thread_local Notification* installed = nullptr;
}

void Notification::install(Notification* notification) {
    installed = notification;
}

}  // namespace memlab::model_check

extern "C" {
void __real__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(
    std::condition_variable*, std::unique_lock<std::mutex>&);
void __real__ZNSt18condition_variable10notify_allEv(std::condition_variable*);

void __wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(
    std::condition_variable* condition, std::unique_lock<std::mutex>& lock) {
    auto* const here = memlab::model_check::installed;
    if (here == nullptr || !here->in_call()) {
        __real__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE(condition, lock);
        return;
    }
    lock.unlock();
    here->wait_for_notification();
    lock.lock();
}

void __wrap__ZNSt18condition_variable10notify_allEv(std::condition_variable* condition) {
    if (memlab::model_check::installed != nullptr) {
        memlab::model_check::installed->notified();
    }
    __real__ZNSt18condition_variable10notify_allEv(condition);
}
}
