"""Runs the cells of a notebook, in a Jupyter kernel or in IPython's own shell, and prints what each shows as JSON.

usage: notebook.py kernel NAME FILE [OUT] | shell FILE | interrupt NAME
"""

import asyncio
import json
import sys

TIMEOUT = 60


def of_kernel(name, path, out=None):
    import nbformat
    from nbclient import NotebookClient
    notebook = nbformat.read(path, 4)
    NotebookClient(notebook, kernel_name=name, timeout=TIMEOUT, allow_errors=True, record_timing=False).execute()
    if out is not None:
        nbformat.write(notebook, out)
    return [shown(cell.outputs) for cell in notebook.cells if cell.cell_type == "code"]


def shown(outputs):
    """Of a cell: the data by their kind, the last of each, and what was printed."""
    cell = {"stdout": "", "stderr": "", "error": None, "size": 0}
    for output in outputs:
        cell["size"] = max(cell["size"], len(json.dumps(output)))
        if output["output_type"] == "stream":
            cell[output["name"]] += output["text"]
        elif output["output_type"] == "error":
            cell["error"] = f"{output['ename']}: {output['evalue']}"
            cell["traceback"] = "\n".join(output["traceback"])
        else:
            cell.update(output["data"])
            cell.setdefault("values", []).append(output["data"].get("text/plain"))
    return cell


def of_shell(path):
    from IPython.core.displayhook import CapturingDisplayHook
    from IPython.core.interactiveshell import InteractiveShell
    from IPython.utils.capture import capture_output
    shell = InteractiveShell.instance()
    shell.colors = "NoColor"
    values = shell.display_trap.hook = CapturingDisplayHook(shell=shell, outputs=[])
    answers = []
    with open(path, encoding="utf-8") as file:
        cells = [cell["source"] for cell in json.load(file)["cells"] if cell["cell_type"] == "code"]
    for source in cells:
        with capture_output() as captured:
            result = shell.run_cell("".join(source), store_history=True)
        outputs = [{"output_type": "display_data", "data": output.data} for output in captured.outputs]
        outputs += [{"output_type": "execute_result", "data": output["data"]} for output in values.outputs]
        values.outputs.clear()
        answer = shown(outputs)
        answer.update(stdout=captured.stdout, stderr=captured.stderr)
        error = result.error_in_exec
        answer["error"] = None if error is None else f"{type(error).__name__}: {error}"
        answers.append(answer)
    return answers


async def interrupted(name):
    """A cell that is interrupted, and one after it."""
    from jupyter_client.manager import AsyncKernelManager
    manager = AsyncKernelManager(kernel_name=name)
    await manager.start_kernel()
    client = manager.client()
    client.start_channels()
    await client.wait_for_ready(timeout=TIMEOUT)
    first = client.execute("import time\nprint('begun', flush=True)\ntime.sleep(600)", stop_on_error=False)
    while True:
        message = await client.get_iopub_msg(timeout=TIMEOUT)
        if message["msg_type"] == "stream" and message["content"]["text"].startswith("begun"):
            break
    await manager.interrupt_kernel()
    answers = [await reply_to(client, first)]
    answers.append(await reply_to(client, client.execute("1 + 1")))
    client.stop_channels()
    await manager.shutdown_kernel()
    return answers


async def reply_to(client, request):
    while True:
        message = await client.get_shell_msg(timeout=TIMEOUT)
        if message["parent_header"].get("msg_id") == request:
            return [message["content"]["status"], message["content"].get("ename")]


if __name__ == "__main__":
    mode, *arguments = sys.argv[1:]
    if mode == "interrupt":
        print(json.dumps(asyncio.run(interrupted(*arguments))))
    else:
        print(json.dumps({"kernel": of_kernel, "shell": of_shell}[mode](*arguments)))
