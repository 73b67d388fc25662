# /// verdict
# needs = ["torch"]
# after = "compiling"
# ///
"""torch.compile takes its time: a compiler runs below rank 0, and rank 1 waits for it."""
import os
import subprocess

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
dist.barrier()
print("compiling", flush=True)
if dist.get_rank() == 0:
    source = os.environ["SCRATCH"] + "/kernel.cpp"
    with open(source, "w") as file:
        file.write("#include <regex>\n#include <map>\n#include <iostream>\n")
        file.writelines(
            f"int f{n}(const std::string& s) {{ std::map<std::string, std::regex> m; m.emplace(s, std::regex(\"a{n}+\"));"
            f" return std::regex_match(s, m.begin()->second); }}\n" for n in range(400)
        )
    for _ in range(2):
        subprocess.run(["g++", "-O2", "-c", source, "-o", source + ".o"], check=True)
dist.barrier()
dist.destroy_process_group()
