#include "tests/model_check/notification.hpp"

#include <pthread.h>

namespace memlab::model_check {

namespace {
constinit thread_local Notification* installed = nullptr;
}

void Notification::install(Notification* notification) {
    installed = notification;
}

}  // namespace memlab::model_check

extern "C" {
int __real_pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex);
int __real_pthread_cond_broadcast(pthread_cond_t* condition);

int __wrap_pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
    auto* const here = memlab::model_check::installed;
    if (here == nullptr || !here->in_call()) {
        return __real_pthread_cond_wait(condition, mutex);
    }
    pthread_mutex_unlock(mutex);
    here->wait_for_notification();
    return pthread_mutex_lock(mutex);
}

int __wrap_pthread_cond_broadcast(pthread_cond_t* condition) {
    if (memlab::model_check::installed != nullptr) {
        memlab::model_check::installed->notified();
    }
    return __real_pthread_cond_broadcast(condition);
}
}
