"""torch.nn.SyncBatchNorm on devices for which torch has no kernels: the CPU, and cards whose vendor did not implement
the five kernels that torch's own layer needs (batch_norm_stats and related ones). There the same layer computes with
ordinary operators and two collectives.

The statistics of all ranks are combined in rank order, from counts, means and squared distances from the mean, in
float32 (float64 for the combination): the same bits on all ranks, and no loss of precision if the mean is large
compared with the spread. Ranks may have any number of rows, including none."""
import functools

from fulldeck.adapters import say_once

_has_kernels = {}


def has_kernels(torch, device):
    """Whether torch's own layer works there. Tried once per kind of device."""
    if device.type in ("cpu", "cuda"):
        return device.type == "cuda"
    if device.type not in _has_kernels:
        try:
            torch.batch_norm_stats(torch.zeros(2, 1, device=device), 1e-5)
            _has_kernels[device.type] = True
        except Exception as error:
            _has_kernels[device.type] = False
            say_once("SyncBatchNorm: there are no kernels for it on {} ({}); it is computed with ordinary operators".format(
                device, str(error).split("\n")[0][:120]))
    return _has_kernels[device.type]


def adapt(torch):
    if not torch.distributed.is_available():
        return None
    twin = make_function(torch)
    layer = torch.nn.SyncBatchNorm
    forward = layer.forward

    @functools.wraps(forward)
    def forward_anywhere(self, input):
        if not (self.training and torch.distributed.is_initialized()) or has_kernels(torch, input.device):
            return forward(self, input)
        return _forward(torch, twin, self, input)

    layer.forward = forward_anywhere
    # DistributedDataParallel rejects the layer in a module on the CPU.
    wrapper = torch.nn.parallel.DistributedDataParallel
    refuse = getattr(wrapper, "_passing_sync_batchnorm_handle", None)
    if refuse is not None:
        @functools.wraps(refuse)
        def check(self, module):
            if getattr(self, "device_type", None) != "cpu":
                refuse(self, module)

        wrapper._passing_sync_batchnorm_handle = check
    return None


def _forward(torch, twin, layer, input):
    """What torch's forward does in training apart from its kernels."""
    layer._check_input_dim(input)
    if input.size(1) == 0:
        raise ValueError("SyncBatchNorm number of input channels should be non-zero")
    factor = 0.0 if layer.momentum is None else layer.momentum
    if layer.track_running_stats and layer.num_batches_tracked is not None:
        layer.num_batches_tracked.add_(1)
        if layer.momentum is None:
            factor = 1.0 / layer.num_batches_tracked.item()
    group = layer.process_group or torch.distributed.group.WORLD
    running = (layer.running_mean, layer.running_var) if layer.track_running_stats else (None, None)
    if torch.distributed.get_world_size(group) < 2:
        return torch.nn.functional.batch_norm(input, running[0], running[1], layer.weight, layer.bias, True, factor, layer.eps)
    return twin.apply(input, layer.weight, layer.bias, running[0], running[1], layer.eps, factor, group)


def make_function(torch):
    """The autograd function; created here because torch.autograd.Function can be derived from only after torch is
    imported."""
    dist = torch.distributed

    def over_rows(x):
        return [dimension for dimension in range(x.dim()) if dimension != 1]

    def as_row(vector, x):
        return vector.reshape([1, -1] + [1] * (x.dim() - 2))

    class SyncBatchNormAnywhere(torch.autograd.Function):
        @staticmethod
        def forward(context, input, weight, bias, running_mean, running_var, eps, factor, group):
            kind = torch.float64 if input.dtype == torch.float64 else torch.float32
            x = input.to(kind)
            channels = input.size(1)
            count = input.numel() // channels
            if count:
                mean = x.mean(over_rows(x))
                distances = (x - as_row(mean, x)).square().sum(over_rows(x))
            else:
                mean = distances = torch.zeros(channels, dtype=kind, device=input.device)
            mine = torch.cat([mean, distances, torch.full((1,), count, dtype=kind, device=input.device)])
            everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
            dist.all_gather(everyone, mine, group)
            total, mean, distances = 0.0, torch.zeros_like(mean), torch.zeros_like(distances)
            for part in everyone:
                rows = part[-1].item()
                if rows:
                    difference = part[:channels] - mean
                    together = total + rows
                    mean = mean + difference * (rows / together)
                    distances = distances + part[channels:2 * channels] + difference.square() * (total * rows / together)
                    total = together
            if total < 2:
                raise ValueError("Expected more than 1 value per channel when training, got {} on all ranks together".format(int(total)))
            variance = distances / total
            if running_mean is not None:
                running_mean.mul_(1 - factor).add_(mean.to(running_mean.dtype), alpha=factor)
                running_var.mul_(1 - factor).add_((distances / (total - 1)).to(running_var.dtype), alpha=factor)
            scale = (variance + eps).rsqrt()
            context.save_for_backward(input, weight, mean, scale)
            context.total, context.group, context.kind = total, group, kind
            normal = (x - as_row(mean, x)) * as_row(scale, x)
            if weight is not None:
                normal = normal * as_row(weight.to(kind), x)
            if bias is not None:
                normal = normal + as_row(bias.to(kind), x)
            return normal.to(input.dtype)

        @staticmethod
        def backward(context, gradient):
            input, weight, mean, scale = context.saved_tensors
            dy = gradient.to(context.kind)
            normal = (input.to(context.kind) - as_row(mean, input)) * as_row(scale, input)
            sums = torch.stack([dy.sum(over_rows(dy)), (dy * normal).sum(over_rows(dy))])
            grad_weight = sums[1].to(weight.dtype) if weight is not None and context.needs_input_grad[1] else None
            grad_bias = sums[0].clone().to(gradient.dtype if weight is None else weight.dtype) if context.needs_input_grad[2] else None
            grad_input = None
            if context.needs_input_grad[0]:
                together = sums.clone()
                dist.all_reduce(together, group=context.group)
                factor = scale if weight is None else scale * weight.to(context.kind)
                grad_input = ((dy - as_row(together[0] / context.total, dy) - normal * as_row(together[1] / context.total, dy))
                              * as_row(factor, dy)).to(gradient.dtype)
            return grad_input, grad_weight, grad_bias, None, None, None, None, None

    return SyncBatchNormAnywhere
