#include "runtime/attention_op.h"

namespace pocket {

namespace {

struct PagedAttentionKernel {
  PagedAttentionKernel(const PagedAttentionOp& op, const ort::OrtKernelInfo* info)
      : op(op), layer(static_cast<int>(attribute(*op.table, info, "layer", 0, op.layers - 1))) {
    op.store->setPairScales(layer, floats(*op.table, info, "pair_scales"));
  }

  void run(ort::OrtKernelContext* context) const {
    const Batch& batch = *op.batch;
    const size_t rows = batch.rows.size();
    const size_t queryWidth = static_cast<size_t>(op.shape.heads) * op.shape.headDim;
    const size_t keyWidth = static_cast<size_t>(op.shape.kvHeads) * op.shape.headDim;
    const NodeRun node(*op.table, context, op.threadPool);
    AttentionInput tensors;
    tensors.q = static_cast<const float*>(node.checked(0, rows * queryWidth, "PagedAttention: q"));
    tensors.k = static_cast<const float*>(node.checked(1, rows * keyWidth, "PagedAttention: k"));
    tensors.v = static_cast<const float*>(node.checked(2, rows * keyWidth, "PagedAttention: v"));
    tensors.out = node.output(0, static_cast<int64_t>(rows), static_cast<int64_t>(queryWidth));
    op.attention->run(batch, tensors, op.store->layer(layer),
                      [&node](int count, const std::function<void(int)>& body) { node.parallel(count, body); });
  }

  const PagedAttentionOp& op;
  int layer;
};

}  // namespace

PagedAttentionOp::PagedAttentionOp() {
  fillCommon(*this);
  fillLife<PagedAttentionOp, PagedAttentionKernel>(*this);
  GetName = [](const OrtCustomOp*) { return "PagedAttention"; };
  GetInputType = [](const OrtCustomOp*, size_t) { return ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT; };
  GetInputTypeCount = [](const OrtCustomOp*) -> size_t { return 3; };
}

}  // namespace pocket
