// The environment variables of a process's rank, by launcher: torchrun, Open MPI, PMIx, MPICH and
// Intel MPI, MVAPICH, Slurm. The first one set wins: torchrun within a Slurm job has both.
#pragma once

#include <array>

namespace memlab::model {

/// The rank in the whole job.
inline constexpr std::array rank_variables = {
    "RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK", "SLURM_PROCID",
};
/// The rank on its host.
inline constexpr std::array local_rank_variables = {
    "LOCAL_RANK",    "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "MV2_COMM_WORLD_LOCAL_RANK",
    "SLURM_LOCALID",
};
/// The number of ranks.
inline constexpr std::array world_size_variables = {
    "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS",
};

}  // namespace memlab::model
