"""Small datasets, from a fixed seed, in the formats that the packages' own training scripts read; nothing is
downloaded. write(folder)"""
import json
import os
import random

DETERMINERS = ["the", "a", "this", "every"]
NOUNS = ["cat", "dog", "bird", "house", "river", "tree", "car", "book", "child", "city"]
VERBS = ["sees", "finds", "likes", "takes", "paints", "hears"]
LEMMAS = {"sees": "see", "finds": "find", "likes": "like", "takes": "take", "paints": "paint", "hears": "hear"}
CITIES = ["Paris", "Berlin", "Madrid", "Oslo"]
CLASSIFIER = """model = dict(
    type="ImageClassifier", backbone=dict(type="MobileNetV2", widen_factor=0.25, out_indices=(7,)), neck=dict(type="GlobalAveragePooling"),
    head=dict(type="LinearClsHead", num_classes=3, in_channels=1280, loss=dict(type="CrossEntropyLoss")))
data_preprocessor = dict(mean=[127, 127, 127], std=[60, 60, 60], num_classes=3)
pipeline = [dict(type="LoadImageFromFile"), dict(type="PackClsInputs")]


def loader(folder, shuffle):
    return dict(batch_size=4, num_workers=0, persistent_workers=False, sampler=dict(type="DefaultSampler", shuffle=shuffle),
                dataset=dict(type="CustomDataset", data_prefix=folder, pipeline=pipeline))


train_dataloader, val_dataloader, val_evaluator = loader("images/train", True), loader("images/dev", False), dict(type="Accuracy", topk=(1,))
train_cfg, val_cfg = dict(by_epoch=True, max_epochs=5, val_interval=1), dict()
test_dataloader = test_evaluator = test_cfg = None
optim_wrapper = dict(optimizer=dict(type="SGD", lr=0.01))
default_scope, work_dir, log_level = "mmcls", "work", "INFO"
"""
TRANSLATION = """name: "small"
joeynmt_version: "2.3.0"
model_dir: "joey"
use_cuda: False
random_seed: 42
data:
    train: "train"
    dev: "dev"
    dataset_type: "plain"
    src: {lang: "source", level: "word", lowercase: False, max_length: 50, voc_min_freq: 1}
    trg: {lang: "target", level: "word", lowercase: False, max_length: 50, voc_min_freq: 1}
testing:
    beam_size: 1
    batch_size: 20
    batch_type: "sentence"
    eval_metrics: ["bleu"]
training:
    optimizer: "adam"
    learning_rate: 0.001
    batch_size: 8
    batch_type: "sentence"
    normalization: "batch"
    loss: "crossentropy"
    epochs: 3
    validation_freq: 20
    logging_freq: 10
    overwrite: True
    early_stopping_metric: "ppl"
    scheduling: "noam"
    learning_rate_factor: 0.5
    learning_rate_warmup: 100
    patience: 5
    max_output_length: 20
    keep_best_ckpts: 2
    num_workers: 0
model:
    initializer: "xavier_uniform"
    bias_initializer: "zeros"
    embed_initializer: "normal"
    encoder: {type: "transformer", num_layers: 1, num_heads: 2, embeddings: {embedding_dim: 16}, hidden_size: 16, ff_size: 32}
    decoder: {type: "transformer", num_layers: 1, num_heads: 2, embeddings: {embedding_dim: 16}, hidden_size: 16, ff_size: 32}
"""
PARSER = """[Network]
n_lstm_hidden = 16
n_encoder_hidden = 16
n_lstm_layers = 1
n_encoder_layers = 1
[Optimizer]
lr = 2e-3
mu = .9
nu = .9
eps = 1e-12
weight_decay = 0
decay = .75
decay_steps = 5000
clip = 5.0
epochs = 6
patience = 100
min_freq = 1
fix_len = 20
batch_size = 100
"""


def sentence(made):
    """[(word, lemma, part of speech, head, relation)], and whether words 4 and 5 are written as one."""
    verb = made.choice(VERBS)
    words = [(made.choice(DETERMINERS), None, "DET", 2, "det"), (made.choice(NOUNS), None, "NOUN", 3, "nsubj"),
             (verb, LEMMAS[verb], "VERB", 0, "root"),
             ("in", None, "ADP", 6, "case"), ("it", None, "DET", 6, "det"), (made.choice(NOUNS + CITIES), None, "NOUN", 3, "obj"),
             (".", None, "PUNCT", 3, "punct")]
    return [(word, lemma or word, tag, head, relation) for word, lemma, tag, head, relation in words], made.random() < 0.5


def words_of(words, joined):
    """The written form: `init` for "in it", which is two words."""
    return [word for word, *_ in words[:3]] + (["init"] if joined else ["in", "it"]) + [word for word, *_ in words[5:]]


def conllu(sentences):
    for words, joined in sentences:
        yield "# text = {}\n".format(" ".join(words_of(words, joined)[:-1]) + ".")
        for number, (word, lemma, tag, head, relation) in enumerate(words, 1):
            if joined and number == 4:
                yield "4-5\tinit" + "\t_" * 8 + "\n"
            yield "\t".join([str(number), word, lemma, tag, tag[0], "Number=Sing" if tag == "NOUN" else "_", str(head), relation, "_",
                             "SpaceAfter=No" if number == 6 else "_"]) + "\n"
        yield "\n"


def conllx(sentences):
    for words, _ in sentences:
        for number, (word, lemma, tag, head, relation) in enumerate(words, 1):
            yield "\t".join([str(number), word, lemma, tag, tag, "_", str(head), relation, "_", "_"]) + "\n"
        yield "\n"


def tree(words):
    leaf = ["({} {})".format(tag, word) for word, _, tag, _, _ in words]
    return "(ROOT (S (NP {} {}) (VP {} (PP {} (NP {} {}))) {}))\n".format(*leaf)


def labels(words, joined):
    """For each character: 1 ends a token, 2 a sentence, 3 a token of several words. A space has 0, and there is none
    before the period."""
    return "0".join("0" * (len(word) - 1) + ("3" if word == "init" else "1") for word in words_of(words, joined)[:-1]) + "2"


def images(folder, made):
    import numpy
    from PIL import Image

    for name in ("train", "dev"):
        for label in range(3):
            os.makedirs(os.path.join(folder, "images", name, "class{}".format(label)))
            for number in range(16):
                pixels = numpy.random.RandomState(made.randrange(1 << 30)).randint(0, 160, (32, 32, 3), dtype="uint8")
                pixels[:, :, label] += 90
                Image.fromarray(pixels).save(os.path.join(folder, "images", name, "class{}".format(label), "{}.png".format(number)))


def write(folder):
    made = random.Random(7)

    def save(name, text):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    for name, count in (("train", 160), ("dev", 40), ("test", 40)):
        sentences = [sentence(made) for _ in range(count)]
        save(name + ".conllu", "".join(conllu(sentences)))
        save(name + ".conllx", "".join(conllx(sentences)))
        save(name + ".trees", "".join(tree(words) for words, _ in sentences))
        lines = [" ".join(words_of(*one)[:-1]) + "." for one in sentences]
        save(name + ".txt", "\n\n".join(lines) + "\n")
        save(name + ".labels", "\n\n".join(labels(*one) for one in sentences) + "\n")
        save(name + ".source", "\n".join(lines) + "\n")
        save(name + ".target", "\n".join(" ".join(reversed(line.split())) for line in lines) + "\n")
        save(name + ".ner.json", json.dumps([[{"text": word, "ner": "S-LOC" if word in CITIES else "O"} for word, *_ in words]
                                             for words, _ in sentences]))
        save(name + ".classes.json", json.dumps([{"sentiment": str(int(words[5][0] in CITIES)), "text": [word for word, *_ in words]}
                                                 for words, _ in sentences]))
    save("multi_word.json", json.dumps([[["init", ["in", "it"]], 80]]))
    known = sorted(set(DETERMINERS + NOUNS + VERBS + CITIES + ["in", "it", "."]))
    save("vectors.txt", "{} 8\n".format(len(known)) + "".join(
        "{} {}\n".format(word, " ".join("{:.3f}".format(made.uniform(-1, 1)) for _ in range(8))) for word in known))
    os.makedirs(os.path.join(folder, "languages"))
    for name in ("train", "dev"):
        examples = [{"text": "".join(made.choice(letters) for _ in range(30)), "label": label}
                    for _ in range(60) for label, letters in (("xx", "abcde "), ("yy", "cdefg "), ("zz", "fghij "))]
        save(os.path.join("languages", name + ".jsonl"), "".join(json.dumps(example) + "\n" for example in examples))
    images(folder, made)
    save("classifier.py", CLASSIFIER)
    save("translation.yaml", TRANSLATION)
    save("parser.ini", PARSER)
