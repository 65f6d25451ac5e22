"""Trains the demo model on a CPU within a time budget.

    python train.py --out run --minutes 95

The learning rate and the switch to sparse attention follow the share of the time budget that has
passed, so a slow or interrupted machine still ends with an annealed model.  A run is resumed by
starting it again with the same --out.  Every process (--processes) computes its share of the rows on
one thread; that suffers far less from other load on the machine than threads inside operators do.
"""
import argparse
import json
import os
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F

import data
from induction import seed_induction, seed_owner
from model import SEGMENT, DemoModel, ModelConfig, Precision, Run
from optim import Muon
from tokenizer import SPECIALS, Tokenizer, train as train_tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
TEXT = os.path.normpath(os.path.join(HERE, "../../../shared/data/text/tinyshakespeare.txt"))


def schedule(share, warmup=0.02, hold=0.75):
    """Learning-rate factor: short rise, plateau, straight line to (almost) zero."""
    if share < warmup:
        return max(share / warmup, 0.02)
    return 1.0 if share < hold else max(1 - (share - hold) / (1 - hold), 0.0) * 0.98 + 0.02


def optimizers(model, args, rank):
    matrices, decayed, plain, index = [], [], [], []
    for name, p in model.named_parameters():
        if ".indexer." in name:
            index.append(p)
        elif "embed_tokens" in name or "lm_head" in name:
            decayed.append(p)
        elif p.dim() < 2 or min(p.shape[-2:]) < 8 or "conv1d" in name:
            plain.append(p)
        else:
            matrices.append(p)
    adam = torch.optim.AdamW([
        dict(params=decayed, lr=args.adam_lr, weight_decay=0.1),
        dict(params=plain, lr=args.adam_lr, weight_decay=0.0),
        dict(params=index, lr=args.adam_lr, weight_decay=0.0),
    ], betas=(0.9, 0.98), eps=1e-10)
    result = [Muon(matrices, args.muon_lr, weight_decay=args.weight_decay,
                   share=(rank, args.processes, dist.all_reduce if args.processes > 1 else None)), adam]
    for o in result:
        for g in o.param_groups:
            g["base_lr"] = g["lr"]
    return result


def state_dropout(rng, rows, steps, chat):
    """keep [rows, steps/SEGMENT]: where the recurrent state survives a segment boundary."""
    rate = rng.choice((0.0, 0.4, 0.8), size=(rows, 1), p=(0.25, 0.35, 0.40))
    rate = np.where(chat[:, None], np.maximum(rate, rng.choice((0.0, 0.5, 0.7), size=(rows, 1), p=(0.1, 0.4, 0.5))), rate)
    return torch.from_numpy((rng.random((rows, steps // SEGMENT)) >= rate).astype(np.float32))


def index_rows(rng, weights, count):
    """Query rows for the indexer's loss: half uniform, half among the answers (if there are any)."""
    out = np.empty((len(weights), count), dtype=np.int64)
    for n, w in enumerate(weights):
        answer = np.flatnonzero(w == data.WEIGHT_ANSWER)
        out[n] = rng.integers(0, len(w), count)
        if len(answer):
            out[n, : count // 2] = rng.choice(answer, count // 2)
    return torch.from_numpy(out)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out", default="run")
    p.add_argument("--text", default=TEXT)
    p.add_argument("--minutes", type=float, default=95)
    p.add_argument("--processes", type=int, default=2)
    p.add_argument("--port", type=int, default=29517)
    p.add_argument("--rows", type=int, default=4)
    p.add_argument("--length", type=int, default=576)
    p.add_argument("--muon-lr", type=float, default=0.02)
    p.add_argument("--adam-lr", type=float, default=3e-3)
    p.add_argument("--weight-decay", type=float, default=0.1)
    p.add_argument("--sparse-from", type=float, default=0.80)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--max-steps", type=int, default=10 ** 9)
    p.add_argument("--seed-step", type=int, default=700, help="when to give the push of induction.py")
    p.add_argument("--owner-step", type=int, default=3000, help="when to give the second push")
    p.add_argument("--gold", type=float, default=1.0, help="weight of the attention guidance for planted codes")
    p.add_argument("--easy", type=float, default=0.6, help="loss per digit below which the recall tasks get harder")
    p.add_argument("--finish-from", type=float, default=0.87, help="share of the time after which recall dominates")
    p.add_argument("--half-until", type=float, default=0.92, help="share of the time with BF16 products")
    args = p.parse_args()
    os.makedirs(args.out, exist_ok=True)
    if args.processes > 1:
        mp.spawn(work, (args,), nprocs=args.processes)
    else:
        work(0, args)


def work(rank, args):
    """One process: the same model everywhere, different rows, summed gradients."""
    torch.set_num_threads(1)
    if args.processes > 1:
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{args.port}", rank=rank, world_size=args.processes)
    plays, held_out = data.shakespeare(args.text)
    verses = data.bible()
    if rank == 0 and not os.path.exists(os.path.join(args.out, "tiktoken.model")):
        Tokenizer(train_tokenizer(data.tokenizer_texts(plays, verses), ModelConfig.vocab_size - SPECIALS)).save(args.out)
    if args.processes > 1:
        dist.barrier()
    tokenizer = Tokenizer.load(args.out)
    torch.manual_seed(args.seed)
    model = DemoModel(ModelConfig(vocab_size=tokenizer.vocab_size))
    opts = optimizers(model, args, rank)
    path, done, step, seen = os.path.join(args.out, "checkpoint.pt"), 0.0, 0, 0
    progress, digit_loss, seeded = 0.0, 3.0, 0
    if os.path.exists(path):
        saved = torch.load(path, weights_only=False)
        model.load_state_dict(saved["model"])
        for o, s in zip(opts, saved["optimizers"]):
            o.load_state_dict(s)
        done, step, seen = saved["seconds"], saved["step"], saved["tokens"]
        progress, digit_loss = saved["progress"], saved["digit_loss"]
        seeded = int(saved["seeded"])
    log = print if rank == 0 else (lambda *a, **k: None)
    log("parameters", sum(q.numel() for q in model.parameters()), "steps so far", step, flush=True)
    batches = data.Batches(tokenizer, plays, verses, args.seed + step)         # the same rows in every process
    rng = np.random.default_rng(args.seed + step + 1000003 * rank)
    held = torch.tensor(tokenizer.encode(held_out))
    held_bytes_per_token = len(held_out.encode()) / len(held)

    def save():
        torch.save(dict(model=model.state_dict(), optimizers=[o.state_dict() for o in opts], config=model.config.to_dict(),
                        seconds=done + time.time() - start, step=step, tokens=seen,
                        progress=progress, digit_loss=digit_loss, seeded=seeded), path + ".tmp")
        os.replace(path + ".tmp", path)

    def quick_held_out(sparse):
        """Bits per byte on eight windows of the held-out text."""
        n = 512
        starts = [1 + i * ((len(held) - n - 1) // 8) for i in range(8)]
        x = torch.stack([held[s - 1 : s + n] for s in starts])
        with torch.no_grad():
            logits = model(x[:, :-1], None, Run(n, sparse))
        return F.cross_entropy(logits.flatten(0, 1), x[:, 1:].flatten()).item() / np.log(2) / held_bytes_per_token

    def everywhere(flat):
        if args.processes > 1:
            dist.all_reduce(flat)
        return flat

    stop = os.path.join(args.out, "stop")           # creating this file ends the run with a checkpoint
    params = list(model.parameters())
    moes = model.moe_layers()
    budget = args.minutes * 60
    start = last_save = last_log = time.time()
    sums, log_steps, last_seen = np.zeros(7), 0, seen
    while step < args.max_steps:
        # everything that depends on the clock must be the same in all processes
        now = time.time()
        passed = (done + now - start) / budget + (10 if os.path.exists(stop) else 0)
        share = everywhere(torch.tensor([passed / args.processes], dtype=torch.float64)).item()
        if share >= 1:
            break
        if seeded < (step >= args.seed_step) + (step >= args.owner_step):
            if seeded == 0:
                seed_induction(model, torch.from_numpy(batches.batch(16, args.length * 2 // 3)[0]))
            else:
                log("right owners", seed_owner(model, batches.chats), flush=True)
            seeded += 1
            if args.processes > 1:
                for q in params:
                    dist.broadcast(q.data, 0)
        factor, sparse = schedule(share), share >= args.sparse_from
        Precision.half = share < args.half_until
        # short rows first; once attention is sparse, every third step has half as many rows of twice the length
        rows, length = args.rows, args.length if progress > 0.5 else args.length * 2 // 3
        if sparse and step % 3 == 0:
            rows, length = rows // 2, length * 2
        mine = slice(rank, None, args.processes)
        batches.chats.progress, batches.chats.finish = progress, share > args.finish_from
        ids, weights, chat = batches.batch(rows, length + 1)
        total = weights[:, 1:].sum()
        gold = data.planted_codes(ids[mine, :-1], weights[mine, :-1])
        ids, weights, chat = torch.from_numpy(ids[mine]), torch.from_numpy(weights[mine])[:, 1:], chat[mine]
        with_index_loss = sparse or step % 2 == 0
        run = Run(length, sparse, index_rows(rng, weights.numpy(), args.length // 4) if with_index_loss else None,
                  gold=torch.from_numpy(gold) if gold.shape[1] else None)
        logits = model(ids[:, :-1], state_dropout(rng, len(ids), length, chat), run)
        loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(weights.shape)
        main_loss = (loss * weights).sum() / float(total)
        (main_loss + (run.index_loss + args.gold * run.gold_loss) / args.processes).backward()
        answer = weights == data.WEIGHT_ANSWER
        digit = (answer & (ids[:, 1:] >= 48) & (ids[:, 1:] <= 57)).float()
        digits = torch.stack(((loss.detach() * digit).sum(), digit.sum()))
        flat = everywhere(torch.cat([(torch.zeros_like(q) if q.grad is None else q.grad).flatten() for q in params] + [m.load.float() for m in moes] + [digits]))
        pieces = flat.split([q.numel() for q in params] + [len(m.load) for m in moes] + [2])
        for q, g in zip(params, pieces):
            q.grad = g.view(q.shape)
        loads, digits = pieces[len(params) : -1], pieces[-1]
        # the recall tasks get harder as soon as the digits of the codes are mostly right
        digit_loss += 0.05 * ((digits[0] / digits[1].clamp(min=1)).item() - digit_loss)
        if digit_loss < args.easy:
            progress = progress + 1 / 200
        progress = min(max(progress, (share - 0.45) / 0.25), 1.0)       # ... and in any case later on
        torch.nn.utils.clip_grad_norm_(params, 2.0)
        for o in opts:
            for g in o.param_groups:
                g["lr"] = g["base_lr"] * factor
            o.step()
        model.zero_grad(set_to_none=True)
        model.balance(loads, 0.002 * factor)
        step, seen = step + 1, seen + rows * length

        if rank:
            continue
        with torch.no_grad():
            document = ~torch.from_numpy(chat)
            sums += [loss[document].sum().item(), document.sum().item() * length, loss[answer].sum().item(), answer.sum().item(),
                     float(run.index_loss), float(with_index_loss), float(run.gold_loss)]
            log_steps += 1
        now = time.time()
        if log_steps >= 50:
            imbalance = max((l.max() / l.mean()).item() for l in loads)
            record = dict(step=step, minutes=round((done + now - start) / 60, 2), rate=round((seen - last_seen) / (now - last_log)),
                          text=round(sums[0] / sums[1], 4), answers=round(sums[2] / sums[3], 4), digits=round(digit_loss, 4),
                          index=round(sums[4] / sums[5], 4), gold=round(sums[6] / log_steps, 4), progress=round(progress, 3), imbalance=round(imbalance, 2), sparse=sparse)
            if step % 100 == 0:
                record["held_out_bpb"] = round(quick_held_out(sparse), 4)
            log(json.dumps(record), flush=True)
            sums[:], log_steps, last_log, last_seen = 0, 0, time.time(), seen
        if now - last_save > 300:
            save()
            last_save = now
    if rank == 0:
        save()
    log("finished", step, "steps", seen, "tokens", flush=True)


if __name__ == "__main__":
    main()
