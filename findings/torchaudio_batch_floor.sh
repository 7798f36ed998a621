#!/usr/bin/env bash
# torchaudio 2.6: MFCC, and AmplitudeToDB with top_db, cut off what lies 80 decibels below the loudest value. In a
# batch [batch, time] of mono recordings that is the loudest value of all of them. So what a network gets of a
# recording depends on its neighbours: quiet parts beside a loud recording become constant, and are heard where the
# recording comes alone, as in use. With the shape [batch, 1, time] each recording has its own limit. The manual of
# MFCC takes "(..., time)", and says, as that of AmplitudeToDB, that a clip which is cut may come out differently;
# only the function amplitude_to_DB() below them says that a batch needs an axis of channels. There is no warning.
# Seen, noise at 8,000 Hz whose second half is a thousandth as loud, beside another one. As loud as itself: equal to
# the recording alone. Ten times as loud, 20 decibels: the second half is moved by 7 decibels on average, and all of
# it is constant. 100 times: by 27 decibels; 10,000 times: by 67, and the first half differs, too. Coefficients of
# MFCC change likewise. With the axis of channels all are equal to the recording alone.
# Frugal: it has no layers for sound, and no sample of a batch of arrays changes another one before the network.
# docs/guide/own_data.md says it to those who make arrays of recordings.
. "$(dirname "$0")/packages.sh"
packages trixie 'python3-torchaudio=2.6.0*'
python_in trixie -c '
import torch
import torchaudio

melkwargs = {"n_fft": 256, "n_mels": 20}
features = {
    "MFCC": torchaudio.transforms.MFCC(8000, 13, melkwargs=melkwargs),
    "decibels": torch.nn.Sequential(torchaudio.transforms.MelSpectrogram(8000, **melkwargs),
                                    torchaudio.transforms.AmplitudeToDB(top_db=80)),
}
noise = torch.randn(2, 8000, generator=torch.Generator().manual_seed(0))
noise[:, 4000:] *= 1e-3
for name, compute in features.items():
    for factor in 1, 10, 100, 10000:
        batch = noise * torch.tensor([[1.0], [factor]])
        alone, beside, channels = compute(batch[:1])[0], compute(batch)[0], compute(batch[:, None])[0, 0]
        same = lambda one, other: "equal" if torch.allclose(one, other, atol=1e-3) else "another"
        heard = lambda part: "constant" if part[:, 40:].std(-1).max() < 1e-3 else "heard"
        print("%s, %d times as loud: first half %s, second half %s, %s, alone %s; with channels %s" % (
            name, factor, same(alone[:, :25], beside[:, :25]), same(alone[:, 40:], beside[:, 40:]), heard(beside),
            heard(alone), same(alone, channels)))
        if name == "decibels":
            print("%s, %d times as loud: moved by %d" % (name, factor, (beside - alone)[:, 40:].mean()))
' | tee "$work/out"
while read -r line; do expect "$line" grep -qxF "$line" "$work/out"; done <<'END_OF_LINES'
MFCC, 1 times as loud: first half equal, second half equal, heard, alone heard; with channels equal
MFCC, 10 times as loud: first half equal, second half another, constant, alone heard; with channels equal
MFCC, 100 times as loud: first half equal, second half another, constant, alone heard; with channels equal
MFCC, 10000 times as loud: first half another, second half another, constant, alone heard; with channels equal
decibels, 1 times as loud: first half equal, second half equal, heard, alone heard; with channels equal
decibels, 1 times as loud: moved by 0
decibels, 10 times as loud: first half equal, second half another, constant, alone heard; with channels equal
decibels, 10 times as loud: moved by 7
decibels, 100 times as loud: first half equal, second half another, constant, alone heard; with channels equal
decibels, 100 times as loud: moved by 27
decibels, 10000 times as loud: first half another, second half another, constant, alone heard; with channels equal
decibels, 10000 times as loud: moved by 67
END_OF_LINES
done_with_it
