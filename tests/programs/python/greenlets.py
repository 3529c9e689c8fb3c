"""Allocates on stacks that a library switches under the interpreter, and says from where: a greenlet's frames are its
own, and end with the function that it runs.

usage: greenlets.py greenlet|gevent EXPECTED_FILE
"""

import json
import sys
import threading

import call_sites
from call_sites import allocate, context, cuda, cuda_with_gil


def down(depth, then):
    """As deep a stack as is asked for, Python's and C's."""
    if depth == 0:
        return then()
    if depth % 3 == 0:
        return list(map(lambda _: down(depth - 1, then), (0,)))[0]
    return down(depth - 1, then)


def both():
    allocate()
    allocate(cuda_with_gil)  # compared with the interpreter's own account


# ---- greenlet


def switched(greenlet):
    main = greenlet.getcurrent()

    def steps():
        for depth in (0, 1, 5, 30):
            down(depth, both)
            down(depth, main.switch)
            both()

    def begin():
        made = greenlet.greenlet(steps)
        made.switch()
        return made

    # What began it returns, others run where that was on the stack, and it goes on.
    made = down(20, begin)
    both()
    for depth in (3, 40, 0, 11, 2, 7):
        if not made.dead:
            down(depth, made.switch)
        down(depth, both)
    assert made.dead


def nested(greenlet):
    """Each begins the next one, and all go on in another order."""
    main = greenlet.getcurrent()
    made = []

    def run(depth):
        both()
        if depth > 0:
            made.append(greenlet.greenlet(run))
            down(depth, lambda: made[-1].switch(depth - 1))
        main.switch()
        down(depth, both)

    made.append(greenlet.greenlet(run))
    made[0].switch(4)
    for each in reversed(made):
        down(8, each.switch)
    for each in made:
        while not each.dead:
            down(2, each.switch)
    both()


def thrown(greenlet):
    main = greenlet.getcurrent()

    def caught():
        try:
            main.switch()
        except KeyError:
            down(4, both)

    made = greenlet.greenlet(caught)
    made.switch()
    down(9, lambda: made.throw(KeyError))
    both()


def with_generators(greenlet):
    main = greenlet.getcurrent()

    def numbers():
        for number in range(3):
            both()
            main.switch()
            yield number

    def run():
        for _ in numbers():
            both()
        sorted((2, 1), key=lambda value: main.switch() or (both(), value)[1])

    made = greenlet.greenlet(run)
    depth = 0
    while not made.dead:
        down(depth, made.switch)
        depth = (depth + 7) % 16
    both()


def in_threads(greenlet):
    def work():
        cuda.cuCtxSetCurrent(context)
        switched(greenlet)
        nested(greenlet)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


def run_greenlet():
    import greenlet

    for each in (switched, nested, thrown, with_generators, in_threads):
        each(greenlet)


# ---- gevent


def run_gevent():
    import gevent
    import gevent.event
    import gevent.pool
    import gevent.threadpool

    def task(number):
        down(number, both)
        gevent.sleep(0)
        down(number % 5, lambda: gevent.sleep(0.001 * (number % 3)))
        both()
        return number

    gevent.joinall([gevent.spawn(task, number) for number in range(20)])
    assert sorted(gevent.pool.Pool(4).map(task, range(12))) == list(range(12))

    event = gevent.event.Event()

    def waits():
        event.wait()
        down(6, both)

    waiting = [gevent.spawn(waits) for _ in range(3)]
    gevent.spawn_later(0.001, event.set)
    gevent.joinall(waiting)

    def in_thread(depth):
        cuda.cuCtxSetCurrent(context)
        down(depth, both)

    gevent.threadpool.ThreadPool(2).map(in_thread, range(6))
    gevent.spawn(both).link(lambda _: both())
    gevent.sleep(0.01)


def main():
    call_sites.start()
    both()
    {"greenlet": run_greenlet, "gevent": run_gevent}[sys.argv[1]]()
    both()
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        json.dump([{"stack": stack, "count": count, "bytes": size}
                   for stack, (count, size) in call_sites.expected.items()], out)


if __name__ == "__main__":
    main()
