//! Names of settings in other toolkits: fairseq, OpenNMT, Marian, JoeyNMT, Sockeye, Hugging Face,
//! PyTorch.

/// Keys of this program (or advice, if there is no key), and below each, indented, its names in
/// other toolkits, as [`plain`] writes them.
const NAMES: &str = "
`training.schedule.learning_rate`:
    lr learn_rate base_lr peak_lr max_lr initial_learning_rate step_size
`training.schedule.minimum`:
    min_lr lr_min learning_rate_min end_learning_rate
`training.schedule.kind`:
    lr_scheduler lr_scheduler_type lr_schedule scheduler scheduling decay_method
    learning_rate_scheduler learning_rate_scheduler_type
`training.schedule.warmup`:
    warmup warmup_steps warmup_updates num_warmup_steps lr_warmup learning_rate_warmup
`training.optimizer.kind`:
    optim optimizer_type optimizer_name optimiser
`training.optimizer.beta1`:
    adam_beta1 beta_1
`training.optimizer.beta2`:
    adam_beta2 beta_2
`training.optimizer.beta1` and `training.optimizer.beta2`:
    betas adam_betas
`training.optimizer.epsilon`:
    eps adam_eps adam_epsilon
`training.optimizer.weight_decay`:
    wd l2 l2_regularization
`training.clip_norm`:
    clip grad_clip clip_grad clip_grad_norm clip_gradient gradient_clip_val gradient_clipping
    max_grad_norm max_norm
`training.accumulation`:
    update_freq accum_count accum_steps grad_accum gradient_accumulation
    gradient_accumulation_steps accumulate_grad_batches batch_multiplier update_interval
    optimizer_delay
`training.label_smoothing`:
    smoothing label_smooth label_smoothing_factor label_smoothing_epsilon smooth_eps
`training.r_drop`:
    rdrop rdrop_alpha reg_alpha
`training.guided_alignment.weight`:
    alignment_loss lambda_align alignment_loss_weight guided_alignment_weight
`training.guided_alignment.layer`:
    alignment_layer
`training.ema_decay`:
    ema ema_rate exponential_smoothing average_decay moving_average
`training.max_updates`:
    max_steps max_update max_iters max_iterations iterations num_steps num_updates total_steps
    train_steps num_train_steps updates steps
`training.max_epochs`:
    epochs epoch max_epoch num_epochs n_epochs num_train_epochs after_epochs
`training.max_minutes`:
    max_time time_limit stop_time_hours max_hours max_seconds
`training.early_stopping.patience`:
    patience early_stop early_stopping_patience max_num_checkpoint_not_improved
`training.early_stopping.metric`:
    early_stopping_metric metric_for_best_model best_checkpoint_metric optimized_metric monitor
    valid_metrics eval_metric
`training.log_every`:
    log_interval logging_steps logging_freq report_every disp_freq
`training.validate_every`:
    eval_every eval_interval eval_steps valid_freq valid_steps validate_interval
    validate_interval_updates validation_freq val_check_interval
`training.checkpoint_every`:
    save_freq save_every save_interval save_interval_updates save_steps save_checkpoint_steps
    checkpoint_interval
`training.keep_last`:
    keep_checkpoint keep_checkpoints keep_last_epochs keep_last_ckpts keep_last_params
    save_total_limit
`training.keep_best`:
    keep_best_checkpoints keep_best_ckpts save_top_k
`training.average_last`:
    average_checkpoints avg_checkpoints num_epoch_checkpoints checkpoint_averaging
`training.seed`:
    random_seed manual_seed rng_seed
`data.batching.max_tokens` (tokens of each side) or `data.batching.max_sentences`:
    batch_size bsz batch minibatch mini_batch train_batch_size
`data.batching.max_tokens`:
    batch_tokens tokens_per_batch batch_size_tokens
`data.batching.max_sentences`:
    batch_sentences per_device_train_batch_size max_batch_size
`data.batching.group_by_length`:
    bucketing bucket sort_by_length length_grouping
`data.batching.prefetch`:
    queue_size prefetch_factor buffer_size
`model.d_model`:
    hidden_size hidden_dim hidden model_dim model_size dim_model dim dim_emb embedding_size
    embedding_dim embed_dim emb_dim emb_size word_vec_size n_embd rnn_size num_embed width
    encoder_embed_dim decoder_embed_dim
`model.d_ff`:
    ffn_dim ff_dim ff_size ffn_size ffn_hidden_size ffn_embed_dim encoder_ffn_dim
    encoder_ffn_embed_dim dim_feedforward feed_forward_dim feed_forward_size feedforward_size
    intermediate_size filter_size inner_dim transformer_ff transformer_dim_ffn
    transformer_feed_forward_num_hidden
`model.heads`:
    nhead n_head n_heads num_heads attention_heads num_attention_heads encoder_attention_heads
    decoder_attention_heads transformer_heads transformer_attention_heads
`model.encoder_layers` and `model.decoder_layers`:
    layers layer n_layers n_layer num_layers num_hidden_layers depth
`model.encoder_layers`:
    enc_layers enc_depth num_encoder_layers
`model.decoder_layers`:
    dec_layers dec_depth num_decoder_layers
`model.embedding_dropout`, `model.attention_dropout`, `model.feed_forward_dropout` and `model.residual_dropout`:
    dropout dropout_rate p_dropout hidden_dropout hidden_dropout_prob
`model.attention_dropout`:
    attn_dropout attn_pdrop transformer_dropout_attention
`model.feed_forward_dropout`:
    activation_dropout relu_dropout act_dropout ffn_dropout transformer_dropout_ffn
`model.residual_dropout`:
    resid_dropout resid_pdrop transformer_dropout
`model.embedding_dropout`:
    emb_dropout embd_pdrop embed_dropout
`model.activation`:
    activation_fn activation_function act_fn hidden_act nonlinearity
`model.norm`:
    pre_norm prenorm norm_first normalize_before encoder_normalize_before layer_norm layernorm
    transformer_preprocess
`model.norm_epsilon`:
    layer_norm_eps layer_norm_epsilon norm_eps
`model.positions`:
    position_encoding positional_encoding position_embedding_type positional_embedding_type
    pos_emb
`model.max_positions`:
    max_position_embeddings n_positions max_source_positions
`model.tied`:
    share_embeddings share_all_embeddings share_decoder_embeddings tie_embeddings
    tie_word_embeddings tied_embeddings tied_embeddings_all tied_softmax weight_tying
`model.biases`:
    bias use_bias use_biases
`model.attention_biases`:
    attention_bias qkv_bias attn_bias add_qkv_bias
`model.scale_embeddings`:
    scale_embedding no_scale_embedding
`model.embedding_norm`:
    layernorm_embedding normalize_embedding
`model.output_bias`:
    final_logits_bias logits_bias output_projection_bias
`data.tokenizer.vocabulary_size`:
    vocab vocab_size vocabulary voc_limit src_vocab_size tgt_vocab_size num_words
`data.tokenizer.joint`:
    joined_dictionary share_vocab shared_vocab joint_vocab joint_vocabulary
`data.tokenizer.dropout`:
    bpe_dropout
`data.tokenizer.kind`:
    tokenizer_type subword subword_type
`data.tokenizer.sampling_alpha`:
    sentencepiece_alpha spm_alpha subword_alpha
`data.tokenizer.path`:
    tokenizer_path tokenizer_file tokenizer_name
`data.source_language`:
    src src_lang source_lang source source_language_code
`data.target_language`:
    tgt trg tgt_lang trg_lang target_lang target target_language_code
`data.dir`:
    data_dir data_path dataset_dir dataset_path
`data.train`:
    train_file train_data train_set train_sets train_path trainset trainpref
`data.validation`:
    val dev valid val_set dev_set valid_set valid_sets validset validpref validation_file
    validation_data valid_data
`data.test`:
    test_file test_set test_data testpref testset
`data.images.resample`:
    interpolation
`data.images.center_crop`:
    do_center_crop crop_size
`data.images.rescale`:
    rescale_factor
`data.images.mean`:
    image_mean
`data.images.deviation`:
    image_std
`data.lowercase`:
    do_lower_case lower_case uncased to_lower
`data.cleaning.max_tokens`:
    max_len max_seq_len max_seq_length max_sequence_length max_sent_length max_source_length
    max_target_length src_seq_length max_length
`data.cleaning.min_tokens`:
    min_len min_seq_len min_length
`data.cleaning.max_ratio`:
    length_ratio ratio
`data.hub.dataset`:
    dataset dataset_name hf_dataset
`decoding.beam_size`:
    beam beams beam_width beamsize num_beams max_beam
`decoding.length_penalty`:
    lenpen len_pen alpha length_alpha beam_alpha length_penalty_alpha normalize
`decoding.length_reward`:
    word_reward word_penalty length_bonus
`decoding.n_best`:
    nbest num_return_sequences
`decoding.max_length`:
    max_output_length max_new_tokens max_len_b max_decode_length
`decoding.max_length_ratio`:
    max_len_a
`decoding.no_repeat_ngram`:
    no_repeat_ngram_size block_ngram_repeat
`decoding.allow_unknown`:
    unkpen allow_unk
`decoding.sampling.temperature`:
    temp sampling_temperature softmax_temperature
`decoding.sampling.top_k`:
    topk sampling_topk
`decoding.sampling.top_p`:
    topp nucleus sampling_topp
`dtype`:
    fp16 bf16 amp precision half mixed_precision model_dtype
`device`:
    use_cuda cuda gpu gpus use_gpu accelerator gpu_ranks
`threads`:
    num_threads num_workers cpu_threads workers n_jobs
`evaluation.tokenize`:
    bleu_tokenize sacrebleu_tokenize eval_tokenize
`evaluation.validation_sentences`:
    validation_limit max_valid_sentences
the option `--run DIR`:
    save_dir save_model model_dir output output_dir checkpoint_dir run_dir
the command `taper resume RUN`:
    resume_from resume_from_checkpoint restore_file load_model reload
";

/// Key of this program that other toolkits call `name`.
pub(super) fn called_here(name: &str) -> Option<&'static str> {
    names().find(|(other, _)| *other == name).map(|(_, called)| called)
}

/// Names in other toolkits with the keys of this program.
pub(super) fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut called = "";
    NAMES.lines().flat_map(move |line| {
        let names = match line.strip_suffix(':') {
            Some(heading) => {
                called = heading;
                ""
            }
            None => line,
        };
        names.split_whitespace().map(move |name| (name, called))
    })
}

/// Spelling of a name in the table: `maxSteps` and `max-steps` are `max_steps`.
pub(super) fn plain(name: &str) -> String {
    let mut plain = String::with_capacity(name.len());
    let mut before = '_';
    for character in name.chars() {
        if character.is_uppercase() && before.is_lowercase() {
            plain.push('_');
        }
        plain.extend(match character {
            '-' | ' ' => '_'.to_lowercase(),
            other => other.to_lowercase(),
        });
        before = character;
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::keys::keys;

    #[test]
    fn names_are_plain_and_stand_once_and_lead_to_keys_that_exist() {
        let all: Vec<(&str, &str)> = names().collect();
        for (index, (name, called)) in all.iter().enumerate() {
            assert_eq!(plain(name), *name);
            assert!(!all[..index].iter().any(|(other, _)| other == name), "{name} stands twice");
            if called.starts_with("the ") {
                continue;
            }
            for key in called.split('`').skip(1).step_by(2) {
                assert!(keys().iter().any(|known| known.name == key), "{key}");
            }
        }
    }

    #[test]
    fn spellings_of_a_name_are_one() {
        for name in ["max_steps", "max-steps", "maxSteps", "MAX_STEPS"] {
            assert_eq!(plain(name), "max_steps");
        }
    }
}
