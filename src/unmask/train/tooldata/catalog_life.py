"""Training tools: food, health, tasks."""

from __future__ import annotations

from unmask.train.tooldata.records import ToolSpec, tool

TOOLS: tuple[ToolSpec, ...] = (
    tool(
        "find_recipe",
        "food",
        "recipe_search search_recipes suggest_recipe",
        "Find a recipe with ingredients.|Recipe search.",
        "ingredients:ingredient_list:items,with_items,foods ?diet:diet:diet_type,restriction,eating_style",
        """
        find a[ {diet}] recipe with {ingredients}
        What can I cook with {ingredients}?[ It must be {diet}.]
        I have {ingredients}, suggest a[ {diet}] recipe
        give me a[ {diet}] recipe that uses {ingredients}
        Any[ {diet}] recipes with {ingredients}?
        search for a[ {diet}] dish made of {ingredients}
        """,
        """
        My fridge has {ingredients}, what could I make?[ I eat {diet}.]
        come up with a[ {diet}] meal based on {ingredients}
        """,
        result="recipe=dish minutes=int:10:75",
        reports="You can make {recipe} in {minutes} minutes.",
    ),
    tool(
        "order_food",
        "food",
        "place_order food_order order_meal",
        "Order a dish.|Order a meal.",
        "dish:dish:item,meal,food quantity:count:amount,portions,how_many "
        "?delivery:delivery:deliver,bring,home_delivery",
        """
        order {quantity} portions of {dish}[ {delivery}]
        I'd like {quantity} portions of {dish}[ {delivery}]
        get me {quantity} servings of {dish}[ {delivery}]
        Can I get {quantity} portions of {dish}[ {delivery}]?
        place an order for {quantity} portions of {dish}[ {delivery}]
        I want to order {dish}, {quantity} portions[, {delivery}]
        """,
        """
        We're hungry, {quantity} plates of {dish}[ {delivery}]
        ask the kitchen for {quantity} helpings of {dish}[ {delivery}]
        """,
        result="order=order_id minutes=int:15:60",
        reports="Your order {order} will be ready in {minutes} minutes.",
    ),
    tool(
        "get_calories",
        "food",
        "calorie_count nutrition_info food_energy",
        "Get the calories of a food.|Calorie lookup.",
        "food:food:item,what,meal",
        """
        How many calories are in {food}?
        How many calories does {food} have?
        tell me the calories in {food}
        What's the calorie count of {food}?
        look up the calories of {food}
        Calories in {food}
        """,
        """
        Is {food} high in calories?
        find out how much energy {food} has in kcal
        """,
        result="calories=int:40:600",
        reports="That is {calories} calories.\nIt has {calories} calories.",
    ),
    tool(
        "book_table",
        "food",
        "reserve_table restaurant_booking make_reservation",
        "Book a restaurant table.|Reserve a table.",
        "restaurant:restaurant:place,venue,where date:date:day,on_date,when time:time:at,hour,start "
        "guests:people:people,party_size,persons",
        """
        book a table at {restaurant} for {guests} people on {date} at {time}
        reserve a table for {guests} at {restaurant} on {date} at {time}
        I need a table for {guests} at {restaurant}, {date} at {time}
        On {date} at {time}, book a table for {guests} at {restaurant}
        get us a table at {restaurant} on {date}, {time}, {guests} people
        Can we have a table for {guests} at {restaurant} on {date} at {time}?
        """,
        """
        Dinner at {restaurant} on {date} at {time}, party of {guests}
        secure seats for {guests} at {restaurant}, {time} on {date}
        """,
        result="code=order_id status==confirmed",
        reports="Your table at {restaurant} is confirmed with code {code}.",
    ),
    tool(
        "log_workout",
        "health",
        "add_workout record_exercise track_training",
        "Log a workout.|Record exercise.",
        "activity:sport:exercise,sport,kind minutes:minutes:duration,length,time_spent",
        """
        log {minutes} of {activity}
        I did {minutes} of {activity}, log it
        add a workout: {activity} for {minutes}
        record {activity} for {minutes}
        Workout: {minutes} of {activity}
        I just finished {activity} for {minutes}, please track it
        """,
        """
        count {minutes} of {activity} as today's exercise
        My training today was {activity}, it lasted {minutes}
        """,
        result="calories=int:80:700 status==saved",
        reports="I logged your workout, you burned {calories} calories.",
    ),
    tool(
        "log_weight",
        "health",
        "record_weight add_weigh_in save_weight",
        "Log body weight.|Record weight in kilograms.",
        "kilograms:weight:kg,weight,value",
        """
        log my weight as {kilograms} kg
        I weigh {kilograms} kilos, save it
        record a weight of {kilograms} kg
        My weight today is {kilograms} kg, log it
        add a weigh-in of {kilograms} kilograms
        Weight: {kilograms} kg
        """,
        """
        The scale says {kilograms} kg, keep track of it
        put down {kilograms} kilos as my body weight
        """,
        result="change=num:1:4 status==saved",
        reports="Saved, your weight changed by {change} kg.",
    ),
    tool(
        "find_doctor",
        "health",
        "doctor_search search_doctors locate_specialist",
        "Find a doctor in a city.|Search medical specialists.",
        "specialty:specialist:field,doctor_type,kind city:city:place,town,location",
        """
        find a {specialty} in {city}
        I need a {specialty} in {city}
        Is there a good {specialty} in {city}?
        search for a {specialty} in {city}
        In {city}, which {specialty} can I see?
        Looking for a {specialty} in {city}
        """,
        """
        Who is a decent {specialty} around {city}?
        recommend me some {specialty} practising in {city}
        """,
        result="name=fullname phone=card",
        reports="You can see {name}, the phone number is {phone}.",
    ),
    tool(
        "add_medication",
        "health",
        "medicine_reminder schedule_medicine pill_reminder",
        "Add a daily medicine reminder.|Schedule a medicine.",
        "medicine:medicine:drug,medication,pill time:time:at,when,hour",
        """
        remind me to take {medicine} every day at {time}
        I take {medicine} at {time} every day, add it
        add {medicine} at {time} to my medication plan
        schedule my {medicine} for {time} daily
        Every day at {time} I need to take {medicine}, set it up
        set up {medicine} in my pill plan at {time}
        """,
        """
        My doctor wants me on {medicine} at {time} each day
        put {medicine} down as a daily dose at {time}
        """,
        result="status==active next=date",
        reports="Your {medicine} reminder starts on {next}.",
        clash="dated",
    ),
    tool(
        "add_task",
        "tasks",
        "create_todo new_task todo_add",
        "Add a to-do item.|Add to the task list.",
        "task:task:item,title,todo ?priority:priority:importance,urgency,rank",
        """
        add {task} to my to-do list[ with {priority} priority]
        put "{task}" on my to-do list[, {priority} priority]
        New task: {task}[, {priority} priority]
        create a task to {task}[ with {priority} priority]
        I need "{task}" on my task list[, {priority} priority]
        add a[ {priority} priority] to-do: {task}
        """,
        """
        jot "{task}" onto my list of todos[, {priority} priority]
        My to-do list is missing "{task}"[, it is {priority} priority]
        """,
        result="id=int:10:99 open=int:2:14",
        reports="I added it, you now have {open} open tasks.",
        clash="todo",
    ),
    tool(
        "set_reminder",
        "tasks",
        "remind_me create_reminder add_reminder",
        "Set a reminder.|Remind at a date and time.",
        "text:task:what,task,about date:date:day,on_date,when ?time:time:at,hour,clock",
        """
        remind me to {text} on {date}[ at {time}]
        set a reminder to {text} on {date}[ at {time}]
        On {date}[ at {time}], remind me to {text}
        I need a reminder on {date}[ at {time}] to {text}
        Don't let me forget to {text} on {date}[ at {time}]
        create a reminder for {date}[ at {time}]: {text}
        """,
        """
        nudge me on {date}[ at {time}] so that I {text}
        I have to {text} on {date}[ at {time}], alert me
        """,
        result="status==set id=int:100:999",
        reports="I will remind you on {date}.\nYour reminder for {date} is set.",
        clash="todo",
    ),
    tool(
        "set_timer",
        "tasks",
        "start_timer countdown timer_new",
        "Start a timer.|Start a countdown.",
        "minutes:minutes:duration,length,for_minutes ?label:dish:name,tag,for_what",
        """
        set a timer for {minutes}[ for the {label}]
        start a timer of {minutes}[ called {label}]
        Timer for {minutes}[, name it {label}]
        I need a timer for {minutes}[ for the {label}]
        count down {minutes}[ for the {label}]
        set a {label} timer for {minutes}
        """,
        """
        let me know when {minutes} have passed[, for the {label}]
        begin a countdown lasting {minutes}[, label {label}]
        """,
        result="ends=time",
        reports="Your timer ends at {ends}.\nThe timer is running until {ends}.",
    ),
    tool(
        "set_alarm",
        "tasks",
        "create_alarm wake_me alarm_at",
        "Set an alarm.|Set an alarm clock.",
        "time:time:at,hour,wake_time ?daily:repeat:repeat,every_day,recurring",
        """
        set an alarm for {time}[, {daily}]
        wake me up at {time}[, {daily}]
        I need an alarm at {time}[, {daily}]
        Alarm at {time}[, {daily}]
        I have to get up at {time}[ {daily}], set an alarm
        make the alarm ring at {time}[, {daily}]
        """,
        """
        get me out of bed at {time}[, {daily}]
        I must be awake by {time}[, {daily}]
        """,
        result="status==on hours=int:2:14",
        reports="Your alarm is set for {time}, {hours} hours from now.",
    ),
    tool(
        "create_note",
        "tasks",
        "save_note write_note note_add",
        "Save a note.|Write down a note.",
        "text:message:content,body,note",
        """
        make a note that {text}
        note down that {text}
        save a note saying {text}
        Note: {text}
        write a note that says {text}
        take a note: {text}
        """,
        """
        keep this in my notebook: {text}
        Scribble this down for me: {text}
        """,
        result="id=int:10:99 status==saved",
        reports="I saved your note as number {id}.",
    ),
)
