# SPDX-License-Identifier: Apache-2.0
"""Lines of vLLM 0.33 and SGLang 0.5.23 that fill memory, and the call of a kernel module that replaces them. Each
function takes tensors on a device and works in place or in `out`. python.kernels compares each with what its sequence
computes, over poisoned memory."""
from fallow import kernels


def empty_shards(lse, seq_lens, query_start_loc):
    """Set the LSE of rows without keys to -inf. vLLM, v1/attention/ops/dcp.py:88-97:

    row_indices = torch.arange(lse.shape[0], ...)
    sequence_indices = torch.searchsorted(query_start_loc[1:], row_indices, right=True).clamp_max(...)
    empty_rows = (row_indices >= query_start_loc[-1]) | (seq_lens[sequence_indices] == 0)
    lse.masked_fill_(empty_rows[:, None], float("-inf"))
    """
    kernels.neutral_rows(None, lse, query_start_loc, seq_lens, lse_by_token=1)


def pad_tail(tensor, count, value):
    """Fill the elements from *count on. vLLM, v1/worker/gpu_model_runner.py:2146, 3375 and 3870:

    self.seq_lens[num_reqs:].fill_(0)
    self.positions[num_scheduled_tokens:num_input_tokens].zero_()
    slot_mapping[num_tokens_unpadded:num_tokens_padded].fill_(-1)
    """
    kernels.padded_copy(tensor, count, dst=tensor, value=value)


def count_experts(topk_ids, counts):
    """Count the tokens of each expert. SGLang, srt/layers/moe/moe_runner/deep_gemm_sm120.py:150-152:

    flat_ids = topk_ids.flatten().to(torch.int64)
    counts = torch.zeros(num_experts, device=device, dtype=torch.int32)
    counts.index_add_(0, flat_ids.clamp_min(0), (flat_ids >= 0).to(torch.int32))
    """
    kernels.expert_counts(topk_ids, counts=counts)


def activate_batches(gate_up, tokens_per_expert, out, scales):
    """Activate and quantise the valid rows of each expert's batch. Rows behind them are outside the outputs, so nothing
    is zeroed first. vLLM, model_executor/layers/fused_moe/experts/batched_deep_gemm_moe.py:200-218, with scales that are
    float and row-major:

    y_s = torch.empty_strided(...)
    y_s.zero_()
    torch.ops._C.persistent_masked_m_silu_mul_quant(y, tokens_per_expert, y_q, y_s, ...)
    """
    kernels.silu_and_mul(gate_up, tokens_per_expert, out=out, scales=scales)


def decode_metadata(seq_lens, requests, req_to_token, page_size, page_table, cache_seqlens, cu_k):
    """Write a step's lengths, offsets and page table. SGLang, srt/layers/attention/flashattention_backend.py:799-831:

    m.cache_seqlens_int32.copy_(seq_lens)
    m.cu_seqlens_k[1:].copy_(torch.cumsum(seq_lens, dim=0))
    max_seq_pages = (max_seq_len_k + self.page_size - 1) // self.page_size
    page_indices = self.req_to_token[req_pool_indices[:bs, None], strided_indices[:max_seq_pages]]
    m.page_table[:, :max_seq_pages].copy_(page_indices // self.page_size)

    The engine's buffers are zeros at first, and max_seq_len_k is read from the host.
    """
    kernels.page_table(seq_lens, None, None, None, requests, req_to_token, page_table=page_table,
                       cache_seqlens=cache_seqlens, cu_k=cu_k, page_size=page_size)
