#!/usr/bin/env python3
"""Every network of the zoo as ONNX, against Frugal's own outputs: onnx_test.py FRUGAL TEST_EXPORT [--whole] [NAME ...]

Weights and statistics are random, so that nothing cancels. --whole takes the networks in their own sizes and those that
the quick run leaves out (minutes). Exits with 77, and says why, where Python's onnx package is missing."""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
    import onnx

    import check_onnx
    import onnx_numpy
except ImportError as missing:
    print(f'left out: {missing} (Debian: python3-onnx)')
    sys.exit(77)
try:
    import cv2
except ImportError:
    cv2 = None

CONFIGS = Path(__file__).resolve().parent.parent.parent / 'configs'
PICTURES, SMALL = {'name': 'random', 'shape': [32, 32, 3]}, {'layers': 2, 'width': 32, 'heads': 4}
SMALL_VOCABULARY = {'vocab_size': 50}
TOKENS = {'name': 'random_tokens', 'max_length': 16}
GRAPH = {'name': 'random_graph'}


def networks(whole):
    """NAME -> (model, data, does OpenCV read it?)"""
    cnn = {n: ({'name': n}, PICTURES, True) for n in ['resnet20']}
    if whole:
        more = ('resnet32 resnet44 resnet56 resnet110 preact_resnet56 resnet18 resnet34 resnet50 resnet101 resnet152 '
                'wide_resnet50_2 wide_resnet101_2 densenet121 densenet161 densenet169 densenet201').split()
        cnn |= {n: ({'name': n}, PICTURES, True) for n in more}
        cnn['resnet50_224'] = ({'name': 'resnet50'}, {'name': 'random', 'shape': [224, 224, 3]}, True)
    all_ = dict(cnn)
    if whole:
        all_['resnet20_b'] = ({'name': 'resnet20', 'shortcut': 'B'}, PICTURES, True)
        all_['resnet18_cifar'] = ({'name': 'resnet18', 'stem': 'cifar'}, PICTURES, True)
        for n in 'vgg11 vgg13 vgg16 vgg19 vgg11_bn vgg13_bn vgg16_bn vgg19_bn'.split():
            all_[n] = ({'name': n, 'width': 64}, PICTURES, True)
        all_['vgg11_64'] = ({'name': 'vgg11', 'width': 32}, {'name': 'random', 'shape': [64, 96, 1]}, True)
    for n in ['lenet', 'mixer', 'vit_small'] + (['vgg_small'] if whole else []):
        model = json.loads((CONFIGS / f'cifar10_{n}.json').read_text())['model']
        all_[n] = (model, PICTURES, n in ('lenet', 'vgg_small'))
    all_['mlp'] = ({'name': 'mlp'}, PICTURES, True)
    for n in ['vit_b_16'] + ('vit_b_32 vit_l_16 vit_l_32'.split() if whole else []):
        all_[n] = ({'name': n} | SMALL, PICTURES, False)
    if whole:
        all_['vit_h_14'] = ({'name': 'vit_h_14'} | SMALL, {'name': 'random', 'shape': [56, 56, 3]}, False)
        all_['vit_b_16_whole'] = ({'name': 'vit_b_16'}, {'name': 'random', 'shape': [224, 224, 3]}, False)
    for n in 'hrnet_w18 hrnet_w32 hrnet_w48'.split() if whole else []:
        all_[n] = ({'name': n}, {'name': 'random_masks', 'shape': [40, 64, 3]}, False)
    for n in 'swin_t swin_s swin_b'.split() if whole else []:
        all_[n] = ({'name': n}, PICTURES, False)
    for n in ['bert_tiny', 'encoder'] + ('bert_mini bert_small bert_medium bert_base bert_large'.split() if whole else []):
        all_[n] = ({'name': n} | SMALL_VOCABULARY, TOKENS, False)
    for n in ['gpt2'] + ('gpt2_medium gpt2_large gpt2_xl'.split() if whole else []):
        all_[n] = ({'name': n} | SMALL | SMALL_VOCABULARY, TOKENS, False)
    for n in ['roberta_base', 'distilbert_base'] + (['roberta_large'] if whole else []):
        all_[n] = ({'name': n} | SMALL | SMALL_VOCABULARY, TOKENS, False)
    decoder = {'name': 'decoder', 'kv_heads': 2} | SMALL | SMALL_VOCABULARY
    for family in 'llama mistral qwen2 qwen3 smollm3 gemma2 gemma3_text'.split():
        window = {} if family == 'llama' else {'attention_window': 3}
        all_[f'decoder_{family}'] = (decoder | {'family': family, 'layers': 6} | window, TOKENS, False)
    # Examples are longer than 7 tokens, and the sizes that the export saw are not.
    slowed = {'rope_base': 100, 'rope_factor': 4, 'rope_first_length': 7}
    for scaling in 'linear dynamic llama3 yarn'.split():
        scaled = {k: v for k, v in slowed.items() if scaling != 'linear' or k != 'rope_first_length'}
        all_[f'decoder_{scaling}'] = (decoder | {'rope_scaling': scaling} | scaled, TOKENS, False)
    if whole:
        all_['gpt2_whole'] = ({'name': 'gpt2'}, TOKENS, False)
    for n in ['gcn', 'sage', 'gat', 'gcnii']:
        all_[n] = ({'name': n} | ({'layers': 4} if n == 'gcnii' else {}), GRAPH, False)
    all_['sage_max'] = ({'name': 'sage', 'aggregation': 'max'}, GRAPH, False)
    all_['gcn_cat'] = ({'name': 'gcn', 'jump': 'cat', 'batch_norm': True, 'residual': True, 'layers': 3}, GRAPH, False)
    all_['gat_max'] = ({'name': 'gat', 'jump': 'max', 'out_heads': 3}, GRAPH, False)
    return all_


def run(*command, **environment):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, env=os.environ | environment)
    if done.returncode != 0:
        raise RuntimeError(f'{" ".join(str(c) for c in command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}')
    return done.stdout


def shaken(source, target, gain):
    """Random weights, and biases and statistics that are neither 0 nor 1. A weight's variance is gain^2 / fan-in."""
    rng = np.random.default_rng(3)
    tensors = check_onnx.read_safetensors(source)
    header, parts, at = {}, [], 0
    for name, value in tensors.items():
        if value.dtype == np.float32:
            if name.endswith('running_var'):
                value = rng.uniform(0.5, 2, value.shape)
            elif value.ndim == 1:
                value = value + rng.uniform(-0.1, 0.1, value.shape)
            else:  # outputs are then near 1 and differ from sample to sample
                value = gain * rng.standard_normal(value.shape) / np.sqrt(np.prod(value.shape[1:]))
            value = value.astype(np.float32)
        data = value.tobytes()
        header[name] = {'dtype': 'F32' if value.dtype == np.float32 else 'I64', 'shape': list(value.shape),
                        'data_offsets': [at, at + len(data)]}
        at += len(data)
        parts.append(data)
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    target.write_bytes(len(text).to_bytes(8, 'little') + text + b''.join(parts))


def checked(model, example, by_opencv):
    spread = np.std(check_onnx.read_safetensors(example)['logits'], axis=0) if '/op_' not in model else np.ones(1)
    assert spread.max() >= 1e-3, f'the samples give outputs that are too alike to compare: {spread.max()}'
    return check_onnx.check(model, example, by_opencv)


def check_network(frugal, folder, name, model, data, by_opencv):
    config, path = folder / f'{name}.json', folder / name
    config.write_text(json.dumps({'model': model, 'data': data, 'threads': 1}))
    run(frugal, 'export', config, '--random', '--output', f'{path}.safetensors')
    gain = 2**0.5 if name.startswith('vgg') else 1  # a relu halves the second moment, and VGG has no residuals
    shaken(f'{path}.safetensors', folder / f'{name}_shaken.safetensors', gain)
    run(frugal, 'export', config, '--checkpoint', folder / f'{name}_shaken.safetensors', '--output', f'{path}.onnx',
        '--example', f'{path}_example.safetensors')
    said = checked(f'{path}.onnx', f'{path}_example.safetensors', by_opencv and cv2 is not None)
    for file in folder.glob(f'{name}*'):
        file.unlink()
    return said


def check_merged(frugal, folder, name, model, table):
    """A run that trains an adapter of an embedding whose weight is the output head's, too."""
    config, path = folder / f'{name}.json', folder / name
    data = TOKENS | {'train_samples': 32, 'batch_size': 4}
    config.write_text(json.dumps({'model': model, 'data': data}))
    run(frugal, 'export', config, '--random', '--format', 'hf', '--output', f'{path}_base')
    target = table.split('.')[-2]
    config.write_text(json.dumps({
        'model': {'weights': f'{path}_base'}, 'data': data, 'optim': {'name': 'adamw', 'lr': 0.1},
        'adapter': {'type': 'lora', 'rank': 3, 'alpha': 6, 'targets': [target]},
        'schedule': {'name': 'constant'}, 'train': {'steps': 8}}))
    run(frugal, 'train', config, '--out', f'{path}_run')
    run(frugal, 'export', f'{path}_run', '--weights', 'last', '--output', f'{path}.onnx', '--example',
        f'{path}.safetensors')
    weights = {w.name: onnx.numpy_helper.to_array(w) for w in onnx.load(f'{path}.onnx').graph.initializer}
    before = check_onnx.read_safetensors(Path(f'{path}_base') / 'model.safetensors')[table]
    assert (weights['lm_head.weight'] == before).all(), 'the head has other weights than before'
    assert np.abs(weights[table] - before).max() > 1e-3, 'the embedding has learned nothing'
    return checked(f'{path}.onnx', f'{path}.safetensors', False)


def check_layer_norm(file):
    """A program that joins the nodes of a layer norm to one must not get an input of a large mean: some of them take
    the variance as mean(x^2) - mean(x)^2 (findings/onnxruntime_layer_norm.sh)."""
    model = onnx.load(file)
    values = check_onnx.read_safetensors(file.with_suffix('.safetensors'))
    inputs = {value.name: values[value.name] for value in model.graph.input}
    first = model.graph.input[0].name
    inputs[first] = inputs[first] + np.float32(4096)
    names = onnx_numpy.centred_inputs(model.graph)
    assert names, 'expected a layer norm'
    found = onnx_numpy.run(model, inputs, also=names)
    for name in names:
        mean = np.abs(found[name].mean(-1)).max()
        assert mean < 1, f'the input of a layer norm has the mean {mean}'


def main():
    arguments = [a for a in sys.argv[1:] if a != '--whole']
    frugal, test_export, wanted = arguments[0], arguments[1], arguments[2:]
    if cv2 is None:
        print('without OpenCV (Debian: python3-opencv): numpy alone')
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for name, (model, data, by_opencv) in networks('--whole' in sys.argv).items():
            if wanted and name not in wanted:
                continue
            try:
                print(f'{name}: {check_network(frugal, folder, name, model, data, by_opencv)}', flush=True)
            except Exception as e:
                bad += 1
                print(f'{name}: {type(e).__name__}: {e}', flush=True)
        tied = {'vocab_size': 50, 'max_positions': 16} | SMALL
        for name, model, table in [
                ('merged_decoder', tied | {'name': 'decoder', 'tied': True}, 'model.embed_tokens.weight'),
                ('merged_gpt2', tied | {'name': 'gpt2'}, 'transformer.wte.weight')]:
            if wanted and name not in wanted:
                continue
            try:
                print(f'{name}: {check_merged(frugal, folder, name, model, table)}', flush=True)
            except Exception as e:
                bad += 1
                print(f'{name}: {type(e).__name__}: {e}', flush=True)
        if not wanted:
            run(test_export, FRUGAL_EXPORT_DIR=str(folder))
            files = sorted(folder.glob('*.onnx'))
            print(f'{len(files)} files of the C++ tests')
            for file in files:
                try:
                    said = checked(str(file), str(file.with_suffix('.safetensors')),
                                   cv2 is not None and file.name.startswith('cnn_'))
                    if file.name.startswith('op_layer_norm'):
                        check_layer_norm(file)
                    if not file.name.startswith('op_'):
                        print(f'{file.name}: {said}')
                except Exception as e:
                    bad += 1
                    print(f'{file.name}: {type(e).__name__}: {e}')
    print(f'{bad} failed' if bad else 'all are equal')
    return 1 if bad else 0


if __name__ == '__main__':
    sys.exit(main())
