<?php
// Runs once, when the template is made: builds everything a step sees beside PHP itself.
// Nothing in here is a trust boundary: the host checks whatever arrives. Messages to the host are one letter and text.
namespace {
    /** A call that was refused or failed. */
    final class ApiError extends RuntimeException
    {
        public $code = '';
        public bool $retryable = false;
        public mixed $details = null;
        public ?string $failure_class = null;

        public static function of(array $answer): self
        {
            $error = new self((string) ($answer['message'] ?? ''));
            $error->code = (string) ($answer['code'] ?? '');
            $error->retryable = ($answer['retryable'] ?? false) === true;
            $error->details = $answer['details'] ?? null;
            $error->failure_class = $answer['failure_class'] ?? null;
            foreach ($error->getTrace() as $frame) {
                if (str_starts_with($frame['file'] ?? '', \Gos\ROOT)) {
                    [$error->file, $error->line] = [$frame['file'], $frame['line']];
                    break;
                }
            }
            return $error;
        }
    }
}

namespace Gos {
    const ROOT = '/process/';
    const FLAGS = \JSON_THROW_ON_ERROR | \JSON_UNESCAPED_SLASHES | \JSON_UNESCAPED_UNICODE;

    /** Ask the appliance and wait for its answer. A value that must be an object is one even when it is empty. */
    function call(string $method, array $arguments, int $object = -1): mixed
    {
        if (($arguments[$object] ?? null) === []) {
            $arguments[$object] = new \stdClass();
        }
        try {
            $text = json_encode($arguments, FLAGS);
        } catch (\JsonException $fault) {
            throw new \ValueError("what $method was given is not plain JSON data: " . $fault->getMessage());
        }
        $answer = post_message_to_js("c\n$method\n$text");
        $value = json_decode(substr($answer, 1), true, 512, \JSON_THROW_ON_ERROR);
        return $answer[0] === '1' ? $value : throw \ApiError::of($value);
    }

    function write_log(string $level, mixed $message, mixed $fields): void
    {
        if (ob_get_level() === 1 && ob_get_length()) {
            ob_flush();
            flush();
        }
        $flags = FLAGS | \JSON_INVALID_UTF8_SUBSTITUTE | \JSON_PARTIAL_OUTPUT_ON_ERROR;
        $text = is_string($message) || $message instanceof \Stringable ? (string) $message : json_encode($message, $flags & ~\JSON_THROW_ON_ERROR);
        $entry = $fields === null || $fields === [] ? [$text] : [$text, $fields];
        post_message_to_js("l$level\n" . json_encode($entry, $flags & ~\JSON_THROW_ON_ERROR));
    }

    // Nothing is required here: the appliance says what is missing, as it does in the other languages.
    final class Integrations
    {
        public function execute($integration = null, $action = null, $input = [])
        {
            return call('integrations.execute', func_get_args(), 2);
        }
    }

    final class Datapool
    {
        public function find($collection = null, $id = null)
        {
            return call('datapool.find', func_get_args());
        }

        public function query($collection = null, $query = [])
        {
            return call('datapool.query', func_get_args(), 1);
        }

        public function create($collection = null, $values = null)
        {
            return call('datapool.create', func_get_args(), 1);
        }

        public function update($collection = null, $id = null, $values = null)
        {
            return call('datapool.update', func_get_args(), 2);
        }

        public function upsert($collection = null, $document = null)
        {
            return call('datapool.upsert', func_get_args(), 1);
        }

        public function delete($collection = null, $id = null)
        {
            return call('datapool.delete', func_get_args());
        }

        public function batch($document = null)
        {
            return call('datapool.batch', func_get_args());
        }
    }

    final class Documents
    {
        public function get($id = null)
        {
            return call('documents.get', func_get_args());
        }

        public function read($id = null)
        {
            return call('documents.read', func_get_args());
        }

        public function create($document = null)
        {
            return call('documents.create', func_get_args(), 0);
        }
    }

    final class Processes
    {
        public function execute($process = null, $input = [], $options = [])
        {
            return call('processes.execute', func_get_args(), 1);
        }
    }

    final class Human
    {
        public function request($request = null)
        {
            return call('human.request', func_get_args(), 0);
        }
    }

    final class Wait
    {
        public function for($duration = null)
        {
            return call('wait.for', func_get_args());
        }

        public function until($time = null)
        {
            return call('wait.until', func_get_args());
        }
    }

    final class Events
    {
        public function wait($name = null)
        {
            return call('events.wait', func_get_args());
        }
    }

    final class Llm
    {
        public function generate($request = null)
        {
            return call('llm.generate', func_get_args(), 0);
        }
    }

    final class Secrets
    {
        public function get($name = null)
        {
            return call('secrets.get', func_get_args());
        }
    }

    final class Log
    {
        public function info($message, $fields = null): void
        {
            write_log('info', $message, $fields);
        }

        public function warn($message, $fields = null): void
        {
            write_log('warn', $message, $fields);
        }

        public function error($message, $fields = null): void
        {
            write_log('error', $message, $fields);
        }
    }

    final class Api
    {
        public readonly object $execution;
        public readonly Integrations $integrations;
        public readonly Datapool $datapool;
        public readonly Documents $documents;
        public readonly Processes $processes;
        public readonly Human $human;
        public readonly Wait $wait;
        public readonly Events $events;
        public readonly Llm $llm;
        public readonly Secrets $secrets;
        public readonly Log $log;

        public function __construct(object $execution)
        {
            $this->execution = $execution;
            $this->integrations = new Integrations();
            $this->datapool = new Datapool();
            $this->documents = new Documents();
            $this->processes = new Processes();
            $this->human = new Human();
            $this->wait = new Wait();
            $this->events = new Events();
            $this->llm = new Llm();
            $this->secrets = new Secrets();
            $this->log = new Log();
        }

        /** The time as the journal has it: RFC 3339 in UTC with milliseconds. */
        public function now(): string
        {
            return (new \DateTimeImmutable('now', new \DateTimeZone('UTC')))->format('Y-m-d\TH:i:s.v\Z');
        }
    }

    /** What was thrown, as the appliance tells of it: positions and calls, of the step's own files only. */
    function describe(\Throwable $fault): array
    {
        $lines = [];
        // An ApiError says where the step called; the trace says that too, with the function that did.
        [$file, $line] = $fault instanceof \ApiError ? ['', 0] : [$fault->getFile(), $fault->getLine()];
        foreach ([...$fault->getTrace(), ['function' => '']] as $frame) {
            $name = ($frame['class'] ?? '') . ($frame['type'] ?? '') . $frame['function'];
            $isBuiltIn = $file === ($frame['file'] ?? '') && $line === ($frame['line'] ?? 0) && $lines === [];
            if (str_starts_with($file, ROOT) && !$isBuiltIn) {
                $lines[] = [$name, $file, $line];
            }
            [$file, $line] = [$frame['file'] ?? '', $frame['line'] ?? 0];
        }
        $previous = $fault->getPrevious();
        return [
            'name' => $fault::class,
            'message' => $fault->getMessage(),
            'lines' => array_slice($lines, 0, 50),
            'code' => is_string($fault->getCode()) ? $fault->getCode() : null,
            'retryable' => ($fault->retryable ?? false) === true,
            'failure_class' => $fault->failure_class ?? null,
            'cause' => $previous === null ? null : $previous::class . ': ' . $previous->getMessage(),
        ];
    }

    function encode_output(mixed $value): string
    {
        if ($value instanceof \Closure || $value instanceof \Generator || is_resource($value)) {
            throw new \TypeError('the step returned a ' . get_debug_type($value) . '; return plain data');
        }
        try {
            return json_encode($value, FLAGS);
        } catch (\JsonException $fault) {
            throw new \ValueError('the step returned something that is not plain JSON data: ' . $fault->getMessage());
        }
    }

    function main(): void
    {
        try {
            [$entry, $facts, $input] = explode("\n", post_message_to_js('i'), 3);
            $api = new Api(json_decode($facts, false, 512, \JSON_THROW_ON_ERROR));
            $step = (static fn (string $file) => require $file)($entry);
            if (!is_object($step) || !is_callable($step)) {
                throw new \TypeError('the file must return a function: return function (array $input, $api) { … };');
            }
            $output = encode_output($step(json_decode($input, true, 512, \JSON_THROW_ON_ERROR), $api));
            while (ob_get_level()) {
                ob_end_flush();
            }
            flush();
            post_message_to_js("d$output");
        } catch (\Throwable $fault) {
            $flags = \JSON_INVALID_UTF8_SUBSTITUTE | \JSON_PARTIAL_OUTPUT_ON_ERROR | \JSON_UNESCAPED_UNICODE | \JSON_UNESCAPED_SLASHES;
            post_message_to_js('f' . json_encode(describe($fault), $flags));
        }
    }

    // Use once what every step uses, so that the template has it ready.
    encode_output(json_decode('{"a": [1, 2.5, "x", null]}', true));
    new Api(new \stdClass());
    class_exists('DateTimeImmutable');
    date('c', 0);
    preg_match('/^a(b)?/u', 'ab');
    flush();
}
